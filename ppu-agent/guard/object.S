/* The compiled BPF program, as bytes. OBJECT is its path. */
	.section .rodata
	.balign 16
	.global bpf_object_start, bpf_object_end
bpf_object_start:
	.incbin OBJECT
bpf_object_end:
	.section .note.GNU-stack, "", %progbits
