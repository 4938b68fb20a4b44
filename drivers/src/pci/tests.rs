//! Configuration space over the fake machine.

use super::*;
use crate::fake::virtio::Device;
use crate::fake::{Config, MSIX_BAR, Machine, REGISTER_BAR};

fn machine_with(functions: &[(Address, Config)]) -> Machine {
    let machine = Machine::with(Device::disk(1));
    machine.look(|inner| inner.functions.extend(functions.iter().cloned()));
    machine
}

fn found(machine: &Machine) -> Vec<String> {
    Pci::new(machine)
        .functions()
        .map(|function| function.address.to_string())
        .collect()
}

#[test]
fn finds_functions_and_devices_behind_bridges() {
    let mut many = Config::new(0x8086, 0x2918);
    many.bytes[0x0e] = 0x80;
    many.bytes[0x0b] = 6;
    let machine = machine_with(&[
        (Address::new(0, 1, 0), Config::bridge_to(2)),
        (Address::new(0, 31, 0), many),
        (Address::new(0, 31, 7), Config::new(0x8086, 0x2930)),
        // Function 0 does not say that there are more: this one is a mirage.
        (Address::new(0, 5, 0), Config::new(1, 1)),
        (Address::new(0, 5, 1), Config::new(1, 1)),
        (Address::new(2, 31, 0), Config::bridge_to(255)),
        (Address::new(255, 31, 0), Config::new(0x1af4, 0x1042)),
        // Behind no bridge.
        (Address::new(9, 0, 0), Config::new(1, 1)),
    ]);
    let expected = [
        "00:01.0", "00:03.0", "00:05.0", "00:1f.0", "00:1f.7", "02:1f.0", "ff:1f.0",
    ];
    assert_eq!(found(&machine), expected);
    let pci = Pci::new(&machine);
    let disks: Vec<_> = pci.find(0x1af4, 0x1042).map(|function| function.address).collect();
    assert_eq!(disks, [Machine::DEVICE, Address::new(255, 31, 0)]);
    assert!(
        pci.functions()
            .any(|function| (function.device, function.class) == (0x2918, 6))
    );
}

#[test]
fn bridges_that_point_in_circles_end() {
    let machine = machine_with(&[
        (Address::new(0, 0, 0), Config::bridge_to(0)),
        (Address::new(0, 1, 0), Config::bridge_to(1)),
        (Address::new(1, 0, 0), Config::bridge_to(0)),
        (Address::new(1, 1, 0), Config::bridge_to(1)),
    ]);
    assert_eq!(found(&machine).len(), 5);
}

#[test]
fn the_last_function_of_the_last_bus_is_the_last() {
    let mut last = Config::new(1, 1);
    last.bytes[0x0e] = 0x80;
    let machine = machine_with(&[
        (Address::new(0, 0, 0), Config::bridge_to(255)),
        (Address::new(255, 31, 0), last.clone()),
        (Address::new(255, 31, 7), last),
    ]);
    assert_eq!(found(&machine), ["00:00.0", "00:03.0", "ff:1f.0", "ff:1f.7"]);
}

#[test]
fn bars_are_measured_and_left_as_they_were() {
    let machine = machine_with(&[]);
    let before = machine.look(|inner| {
        let config = inner.functions.get_mut(&Machine::DEVICE).unwrap();
        config.put(0x10, &1_u32.to_le_bytes());
        config.bytes[4] = 3;
        config.clone()
    });
    let pci = Pci::new(&machine);
    let bar = |index| pci.memory_bar(Machine::DEVICE, index);
    assert_eq!(bar(0), Err(BarError::Ports));
    assert_eq!(
        bar(1),
        Ok(MemoryBar {
            address: MSIX_BAR,
            bytes: 0x1000
        })
    );
    assert_eq!(bar(2), Err(BarError::Unassigned));
    assert_eq!(
        bar(4),
        Ok(MemoryBar {
            address: REGISTER_BAR,
            bytes: 0x4000
        })
    );
    assert_eq!(bar(6), Err(BarError::NoSuchBar));
    assert_eq!(bar(255), Err(BarError::NoSuchBar));
    machine.look(|inner| assert_eq!(inner.functions[&Machine::DEVICE].bytes, before.bytes));
}

#[test]
fn a_wide_bar_needs_two_and_a_length() {
    let machine = machine_with(&[]);
    let pci = Pci::new(&machine);
    machine.look(|inner| {
        inner
            .functions
            .get_mut(&Machine::DEVICE)
            .unwrap()
            .put(0x24, &[4, 0, 0, 0]);
    });
    assert_eq!(pci.memory_bar(Machine::DEVICE, 5), Err(BarError::NoSuchBar));
    // No writable bit at all.
    machine.look(|inner| inner.functions.get_mut(&Machine::DEVICE).unwrap().bar_masks = [0; 6]);
    assert_eq!(pci.memory_bar(Machine::DEVICE, 4), Err(BarError::Unassigned));
}

#[test]
fn capabilities_come_in_order_and_end() {
    let machine = machine_with(&[]);
    let pci = Pci::new(&machine);
    let kinds: Vec<_> = pci
        .capabilities(Machine::DEVICE)
        .map(|found| (found.identifier, found.offset))
        .collect();
    assert_eq!(
        kinds,
        [(9, 0x40), (9, 0x54), (9, 0x64), (9, 0x78), (9, 0x88), (0x11, 0x98)]
    );
    // A pointer into the header ends the list; one to the end of configuration space does no harm;
    // a loop ends.
    machine.look(|inner| inner.functions.get_mut(&Machine::DEVICE).unwrap().bytes[0x55] = 0x10);
    assert_eq!(pci.capabilities(Machine::DEVICE).count(), 2);
    machine.look(|inner| inner.functions.get_mut(&Machine::DEVICE).unwrap().bytes[0x55] = 0xff);
    assert_eq!(pci.capabilities(Machine::DEVICE).count(), 3);
    machine.look(|inner| inner.functions.get_mut(&Machine::DEVICE).unwrap().bytes[0x55] = 0x54);
    assert_eq!(pci.capabilities(Machine::DEVICE).count(), 48);
}

#[test]
fn enabling_leaves_the_status_register_alone() {
    let machine = machine_with(&[]);
    let pci = Pci::new(&machine);
    let command = || machine.look(|inner| inner.functions[&Machine::DEVICE].u16_at(4));
    pci.enable(Machine::DEVICE);
    assert_eq!(command(), 0x406);
    pci.disable_bus_master(Machine::DEVICE);
    assert_eq!(command(), 0x402);
}
