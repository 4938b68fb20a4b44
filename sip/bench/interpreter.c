/* An interpreter of a small stack machine that computes remainders in a loop. */
#include "kernel.h"
enum { PUSH, LOAD, STORE, ADD, SUB, MUL, MOD, LESS, JUMP_IF, JUMP, CALL, RETURN, HALT };
static const u8 program[] = {
    PUSH, 0, STORE, 0, PUSH, 1, STORE, 1,
    /* 8: */ LOAD, 0, LOAD, 1, CALL, 32, ADD, STORE, 0, LOAD, 1, PUSH, 1, ADD, STORE, 1,
    LOAD, 1, LOAD, 2, LESS, JUMP_IF, 8, HALT,
    /* 32: */ PUSH, 7, MUL, PUSH, 3, ADD, PUSH, 101, MOD, RETURN};
u64 run(u32 n) {
    long long stack[64], locals[4] = {0, 0, 20000, 0};
    u32 calls[16];
    u64 sum = 0;
    while (n--) {
        u32 at = 0, top = 0, depth = 0;
        for (int going = 1; going;) {
            switch (program[at++]) {
            case PUSH: stack[top++] = program[at++]; break;
            case LOAD: stack[top++] = locals[program[at++]]; break;
            case STORE: locals[program[at++]] = stack[--top]; break;
            case ADD: top--; stack[top - 1] += stack[top]; break;
            case SUB: top--; stack[top - 1] -= stack[top]; break;
            case MUL: top--; stack[top - 1] *= stack[top]; break;
            case MOD: top--; stack[top - 1] %= stack[top]; break;
            case LESS: top--; stack[top - 1] = stack[top - 1] < stack[top]; break;
            case JUMP_IF: at = stack[--top] ? program[at] : at + 1; break;
            case JUMP: at = program[at]; break;
            case CALL: calls[depth++] = at + 1; at = program[at]; break;
            case RETURN: at = calls[--depth]; break;
            default: going = 0;
            }
        }
        sum += (u64)locals[0];
    }
    return sum;
}
