/* Sends texts and prints what comes back. Built without a C library:
   clang --target=wasm32 -O2 -nostdlib -Wl,--no-entry -Wl,--export=_start -I.. -I. client.c -o client.wasm */
#include "words.h"

struct iovec { const void *base; uint32_t length; };
extern int32_t fd_write(int32_t fd, const struct iovec *vectors, uint32_t count, uint32_t *written)
    GONDWANA_IMPORT("wasi_snapshot_preview1", "fd_write");

static char buffer[256];

static uint32_t length(const char *text) {
    uint32_t count = 0;
    while (text[count]) count++;
    return count;
}

static void print(const char *text, uint32_t bytes) {
    struct iovec vector = {text, bytes};
    uint32_t written;
    fd_write(1, &vector, 1, &written);
}

static const char *const texts[] = {"one block", "goes to and fro", "and is nobody's twice"};

void _start(void) {
    gondwana_endpoint server = words_client_start();
    for (unsigned at = 0; at < sizeof texts / sizeof *texts; at++) {
        gondwana_block block = gondwana_alloc(length(texts[at]));
        gondwana_copy_in(block, 0, texts[at], length(texts[at]));
        if (words_client_text(server, block) != 0 || words_client_receive(server) != WORDS_COUNTED) {
            print("the server is gone\n", 19);
            return;
        }
        block = words_client_counted_data(server);
        uint32_t bytes = gondwana_len(block);
        buffer[0] = (char)('0' + words_client_counted_words(server));
        buffer[1] = ' ';
        gondwana_copy_out(block, 0, buffer + 2, bytes);
        buffer[2 + bytes] = '\n';
        print(buffer, bytes + 3);
        gondwana_free(block);
    }
    words_client_stop(server);
}
