# setjmp and longjmp. They keep the data register as the calling convention has it, so a jump out of another module
# comes back to the caller's own data.
	.text
	.globl	_setjmp
	.type	_setjmp, @function
_setjmp:
	mov	%rbx, (%rdi)
	mov	%rbp, 8(%rdi)
	mov	%r12, 16(%rdi)
	mov	%r13, 24(%rdi)
	mov	%r14, 32(%rdi)
	mov	%r15, 40(%rdi)
	lea	8(%rsp), %rdx
	mov	%rdx, 48(%rdi)
	mov	(%rsp), %rdx
	mov	%rdx, 56(%rdi)
	xor	%eax, %eax
	ret
	.size	_setjmp, . - _setjmp

	.globl	longjmp
	.type	longjmp, @function
longjmp:
	mov	%esi, %eax
	test	%eax, %eax
	jnz	1f
	inc	%eax
1:	mov	(%rdi), %rbx
	mov	8(%rdi), %rbp
	mov	16(%rdi), %r12
	mov	24(%rdi), %r13
	mov	32(%rdi), %r14
	mov	40(%rdi), %r15
	mov	48(%rdi), %rsp
	jmp	*56(%rdi)
	.size	longjmp, . - longjmp

	.section .note.GNU-stack, "", @progbits
