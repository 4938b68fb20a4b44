/* Sends a block of BYTES bytes ROUNDS times and has it back. */
#include "echo.h"
#ifndef BYTES
#define BYTES 1
#define ROUNDS 1
#endif
__attribute__((export_name("run"))) void run(void) {
    gondwana_endpoint peer = echo_client_start();
    gondwana_block block = gondwana_alloc(BYTES);
    for (int round = 0; round < ROUNDS; round++) {
        if (echo_client_ping(peer, block) != 0 || echo_client_receive(peer) != ECHO_PONG) __builtin_trap();
        block = echo_client_pong_data(peer);
    }
    echo_client_stop(peer);
}
