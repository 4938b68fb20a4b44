/* Sends each block back. */
#include "echo.h"
__attribute__((export_name("run"))) void run(void) {
    gondwana_endpoint peer = echo_server_start();
    while (echo_server_receive(peer) == ECHO_PING)
        if (echo_server_pong(peer, echo_server_ping_data(peer)) != 0) return;
}
