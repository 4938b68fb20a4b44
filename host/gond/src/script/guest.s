# A guest for testing the script driver without a kernel: speaks the control line's protocol, and misbehaves on demand.
# Lines begin with a letter that says what to do: e(cho the rest), f(ail with status 1), h(ang), r(eboot), p(anic),
# x (reset the processor), s(peak nonsense); anything else powers off.
        .code32
        .section .note.pvh, "a", @note
        .align 4
        .long 4, 4, 18
        .asciz "Xen"
        .long start

        .set COM1, 0x3f8
        .set COM2, 0x2f8
        .set EXIT, 0xf4

        .bss
        .align 16
        .space 4096
stack:
line:   .space 4096

        .section .rodata
ready:  .asciz "ready\n"
boots:  .asciz "starting\r\n"
good:   .asciz "status 0\n"
bad:    .asciz "status 1\n"
newline: .asciz "\r\n"
words:  .asciz "\033[31mwhat?\n"

        .text
        .globl start
start:  mov $stack, %esp
        mov $boots, %esi        # before it asks for a line: no line's output
        mov $COM1, %dx
        call print
next:   mov $ready, %esi
        mov $COM2, %dx
        call print
        mov $line, %edi
        mov $COM2 + 5, %dx
1:      in %dx, %al             # line status: is there a byte?
        test $1, %al
        jz 1b
        mov $COM2, %dx
        in %dx, %al
        mov $COM2 + 5, %dx
        cmp $'\n', %al
        je 2f
        stosb
        jmp 1b
2:      movb $0, (%edi)
        cmpb $'e', line         # "end"
        je off
        mov line + 5, %al       # behind "line "
        cmp $'e', %al
        je echo
        cmp $'f', %al
        je fail
        cmp $'h', %al
        je hang
        cmp $'r', %al
        je reboot
        cmp $'p', %al
        je panic
        cmp $'x', %al
        je reset
        cmp $'s', %al
        je speak
off:    mov $0x10, %al
leave:  mov $EXIT, %dx
        out %al, %dx
hang:   jmp hang
reboot: mov $0x13, %al
        jmp leave
panic:  mov $0x12, %al
        jmp leave
reset:  lidt empty
        int3
speak:  mov $words, %esi
        mov $COM2, %dx
        call print
        jmp done
echo:   mov $line + 6, %esi
        mov $COM1, %dx
        call print
        mov $newline, %esi
        call print
done:   mov $good, %esi
        mov $COM2, %dx
        call print
        jmp next
fail:   mov $bad, %esi
        mov $COM2, %dx
        call print
        jmp next

# Prints the text at esi to the port dx, as fast as the port takes it.
print:  lodsb
        test %al, %al
        jz 4f
        push %eax
        add $5, %dx
3:      in %dx, %al
        test $0x20, %al
        jz 3b
        sub $5, %dx
        pop %eax
        out %al, %dx
        jmp print
4:      ret

        .align 4
empty:  .word 0
        .long 0
        .section .note.GNU-stack, "", @progbits
