//! The entropy driver over the fake machine.

use super::*;
use crate::fake::Machine;
use crate::fake::virtio::Device;

const LOOKS: u32 = 1000;

fn entropy(most: usize) -> (Machine, EntropyDevice<Machine>) {
    let machine = Machine::with(Device::entropy(most));
    let device = EntropyDevice::probe(&Pci::new(&machine), Machine::DEVICE, &mut machine.clone()).unwrap();
    (machine, device)
}

#[test]
fn fills_buffers_of_any_size_from_a_device_that_gives_little() {
    for most in [1, 7, 100, 4096, 10_000] {
        for wanted in [0, 1, 32, 4096, 5000] {
            let (machine, mut device) = entropy(most);
            let mut buffer = vec![0; wanted];
            device.fill(&mut buffer, u32::MAX).unwrap();
            assert!(
                buffer.iter().zip(1_u32..).all(|(byte, count)| *byte == count as u8),
                "{most}, {wanted}"
            );
            // Nothing secret stays behind, and no interrupt was asked for.
            assert_eq!(machine.memory.read(device.page.physical()), [0; 4096]);
            machine.device(|fake, _| assert!(fake.interrupts.is_empty()));
        }
    }
}

#[test]
fn a_silent_device_is_given_up() {
    let (machine, mut device) = entropy(100);
    machine.device(|fake, _| fake.is_prompt = false);
    assert_eq!(device.fill(&mut [0; 32], LOOKS), Err(EntropyError::Timeout));
    machine.device(|fake, _| assert_eq!(fake.status, 0));
    assert_eq!(device.fill(&mut [0; 32], LOOKS), Err(EntropyError::DeviceLost));
}

#[test]
fn a_device_that_lies_is_given_up() {
    for written in [0, 33, 4097, u32::MAX] {
        let (machine, mut device) = entropy(100);
        machine.device(|fake, _| fake.mischief.written = Some(written));
        assert_eq!(device.fill(&mut [0; 32], LOOKS), Err(EntropyError::DeviceLost));
    }
    let (machine, mut device) = entropy(100);
    machine.device(|fake, _| fake.is_prompt = false);
    machine.device(|fake, memory| fake.side.as_mut().unwrap().put(memory, 200, 32));
    assert_eq!(device.fill(&mut [0; 32], LOOKS), Err(EntropyError::DeviceLost));
    let (machine, mut device) = entropy(100);
    machine.device(|fake, _| fake.is_prompt = false);
    machine.device(|fake, _| fake.break_down());
    assert_eq!(device.fill(&mut [0; 32], LOOKS), Err(EntropyError::DeviceLost));
}
