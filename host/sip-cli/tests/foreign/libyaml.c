#include "driver.h"
#include <yaml.h>
int main(void) {
    static char text[60000];
    for (int i = 0; i < 400; i++)
        sprintf(text + strlen(text), "k%d: {a: [%u, 'x y', \"q\\n\"], b: *r}\nl%d: &r\n  - one\n  - >\n    folded %u\n    text\n", i, number(99), i, number(9));
    yaml_parser_t parser;
    yaml_event_t event;
    u32 total = 0, count = 0, done = 0;
    yaml_parser_initialize(&parser);
    yaml_parser_set_input_string(&parser, (u8 *)text, strlen(text));
    while (!done && yaml_parser_parse(&parser, &event)) {
        count++, total = total * 31 + event.type + (u32)event.start_mark.index;
        if (event.type == YAML_SCALAR_EVENT) total ^= sum(event.data.scalar.value, event.data.scalar.length);
        done = event.type == YAML_STREAM_END_EVENT;
        yaml_event_delete(&event);
    }
    printf("%u events, %08x, error %d\n", count, total, parser.error);
    yaml_parser_delete(&parser);
    return 0;
}
