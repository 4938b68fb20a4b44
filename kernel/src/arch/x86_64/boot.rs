//! From the loader to Rust.
//!
//! QEMU's `-kernel` finds the PVH note and jumps to `pvh_start` in 32-bit mode, paging off, with
//! the physical address of the start information in ebx. The tables here map the first 4 GiB three
//! times: at 0 (for the few instructions before the jump), at the direct map, and its first GiB at
//! -2 GiB where the kernel is linked. [`super::paging`] replaces them with strict ones.
//!
//! Every other processor starts in real mode, at a copy of `trampoline_start`, and joins the same way; it
//! leaves for `processor_high` ([`super::smp`]) instead of `high_start`.

use core::arch::global_asm;

use super::processor;

global_asm!(
    r#"
    .section .note.pvh, "a", @note
    .balign 4
    .long 4, 4, 18
    .asciz "Xen"
    .long pvh_start

    .section .boot.text, "ax", @progbits
    .code32
    .global pvh_start
pvh_start:
    cli
    cld
    xorl %ebp, %ebp
enable_long:
    movl %cr4, %eax
    orl $0x20, %eax
    movl %eax, %cr4
    movl $boot_root, %eax
    movl %eax, %cr3
    movl $0xc0000080, %ecx
    rdmsr
    orl $0x901, %eax
    wrmsr
    movl %cr0, %eax
    # Paging, write protection; caches on, which a processor that starts has off.
    orl $0x80010001, %eax
    andl $0x9fffffff, %eax
    movl %eax, %cr0
    lgdt boot_gdt_pointer
    ljmpl $8, $long_start
    .code64
long_start:
    movw $16, %ax
    movw %ax, %ds
    movw %ax, %es
    movw %ax, %ss
    movl %ebx, %edi
    movabsq $high_start, %rax
    testl %ebp, %ebp
    jz 1f
    movabsq $processor_high, %rax
1:
    jmpq *%rax

    # What another processor begins with, copied to a page below 1 MiB: real mode, the offset in that page in ip.
    .code16
    .global trampoline_start
trampoline_start:
    cli
    cld
    movw %cs, %ax
    movw %ax, %ds
    lgdtl trampoline_gdt_pointer - trampoline_start
    movl %cr0, %eax
    orl $1, %eax
    movl %eax, %cr0
    ljmpl $24, $processor_low
    .balign 4
trampoline_gdt_pointer:
    .word 31
    .long boot_gdt
    .global trampoline_end
trampoline_end:

    .code32
processor_low:
    movw $16, %ax
    movw %ax, %ds
    movw %ax, %es
    movw %ax, %ss
    movl $1, %ebp
    jmp enable_long
    .code64

    .section .boot.data, "aw", @progbits
    .balign 8
boot_gdt:
    # Null, 64-bit code, data, 32-bit code.
    .quad 0, 0x00af9a000000ffff, 0x00cf92000000ffff, 0x00cf9a000000ffff
boot_gdt_pointer:
    .word 31
    .long boot_gdt
    .balign 4096
boot_root:
    .quad boot_low + 3
    .skip 255 * 8
    .quad boot_low + 3
    .skip 254 * 8
    .quad boot_high + 3
    .balign 4096
boot_low:
    .quad boot_memory + 0x3, boot_memory + 0x1003, boot_memory + 0x2003, boot_memory + 0x3003
    .skip 508 * 8
    .balign 4096
boot_high:
    .skip 510 * 8
    .quad boot_memory + 3
    .skip 8
    .balign 4096
boot_memory:
    .set place, 0
    .rept 2048
    .quad place * 0x200000 + 0x83
    .set place, place + 1
    .endr

    .section .text.entry, "ax", @progbits
high_start:
    movq ${stack} + {stack_bytes}, %rsp
    xorl %ebp, %ebp
    call {start}
    ud2
    "#,
    stack = sym processor::KERNEL,
    stack_bytes = const processor::FIRST_STACK,
    start = sym super::image::kernel_start,
    options(att_syntax)
);
