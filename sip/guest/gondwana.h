/* What every guest in C needs beside the bindings of its contracts: blocks of the exchange heap, and
   endpoints. A handle names its block until the block is freed or sent; then it reads as length 0. An
   access outside a block stops the process. */
#ifndef GONDWANA_H
#define GONDWANA_H

#include <stdint.h>

#define GONDWANA_IMPORT(module, name) __attribute__((import_module(module), import_name(name)))
#define GONDWANA_HEAP(name) GONDWANA_IMPORT("gondwana:heap", name)

typedef int32_t gondwana_block;
typedef int32_t gondwana_endpoint;

/* What receive yields when the other end is closed. */
#define GONDWANA_PEER_GONE (-1)

extern gondwana_block gondwana_alloc(uint32_t bytes) GONDWANA_HEAP("alloc");
extern void gondwana_free(gondwana_block block) GONDWANA_HEAP("free");
extern uint32_t gondwana_len(gondwana_block block) GONDWANA_HEAP("len");
extern uint32_t gondwana_ld8(gondwana_block block, uint32_t offset) GONDWANA_HEAP("ld8");
extern uint32_t gondwana_ld16(gondwana_block block, uint32_t offset) GONDWANA_HEAP("ld16");
extern uint32_t gondwana_ld32(gondwana_block block, uint32_t offset) GONDWANA_HEAP("ld32");
extern uint64_t gondwana_ld64(gondwana_block block, uint32_t offset) GONDWANA_HEAP("ld64");
extern float gondwana_ldf32(gondwana_block block, uint32_t offset) GONDWANA_HEAP("ldf32");
extern double gondwana_ldf64(gondwana_block block, uint32_t offset) GONDWANA_HEAP("ldf64");
extern void gondwana_st8(gondwana_block block, uint32_t offset, uint32_t value) GONDWANA_HEAP("st8");
extern void gondwana_st16(gondwana_block block, uint32_t offset, uint32_t value) GONDWANA_HEAP("st16");
extern void gondwana_st32(gondwana_block block, uint32_t offset, uint32_t value) GONDWANA_HEAP("st32");
extern void gondwana_st64(gondwana_block block, uint32_t offset, uint64_t value) GONDWANA_HEAP("st64");
extern void gondwana_stf32(gondwana_block block, uint32_t offset, float value) GONDWANA_HEAP("stf32");
extern void gondwana_stf64(gondwana_block block, uint32_t offset, double value) GONDWANA_HEAP("stf64");
/* Between a block and memory. */
extern void gondwana_copy_in(gondwana_block block, uint32_t offset, const void *from, uint32_t bytes)
    GONDWANA_HEAP("copy_in");
extern void gondwana_copy_out(gondwana_block block, uint32_t offset, void *to, uint32_t bytes)
    GONDWANA_HEAP("copy_out");
/* A block in a slot (below 64) of another belongs to it; take yields 0 if the slot is empty. */
extern void gondwana_put(gondwana_block block, uint32_t slot, gondwana_block child) GONDWANA_HEAP("put");
extern gondwana_block gondwana_take(gondwana_block block, uint32_t slot) GONDWANA_HEAP("take");
extern void gondwana_close(gondwana_endpoint endpoint) GONDWANA_IMPORT("gondwana:channel", "close");

#endif
