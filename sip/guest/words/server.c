/* Sends each text back in capital letters, with the number of its words; built as client.c is. */
#include "words.h"

void _start(void) {
    gondwana_endpoint client = words_server_start();
    while (words_server_receive(client) == WORDS_TEXT) {
        gondwana_block block = words_server_text_data(client);
        int32_t words = 0, inside = 0;
        for (uint32_t at = 0; at < gondwana_len(block); at++) {
            uint32_t byte = gondwana_ld8(block, at);
            words += !inside && byte != ' ';
            inside = byte != ' ';
            gondwana_st8(block, at, byte >= 'a' && byte <= 'z' ? byte - 32 : byte);
        }
        if (words_server_counted(client, block, words) != 0) return;
    }
}
