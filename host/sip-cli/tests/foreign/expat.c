#include "driver.h"
#include <expat.h>
#ifdef __wasm__
int getpid(void) { return 1; } /* for a salt that is set here */
#endif
static u32 total;
static void start(void *data, const char *name, const char **attributes) {
    (void)data;
    total = total * 31 + sum(name, strlen(name));
    for (; *attributes; attributes++) total ^= sum(*attributes, strlen(*attributes)) * 3;
}
static void end(void *data, const char *name) { (void)data; total = total * 37 + sum(name, strlen(name)); }
static void text(void *data, const char *at, int length) { (void)data; for (; length--; at++) total = total * 33 + (u8)*at; }
int main(void) {
    static char document[100000];
    for (int round = 0; round < 20; round++) {
        strcpy(document, "<?xml version='1.0'?><!DOCTYPE d [<!ENTITY e 'text &#233;'>]><d>");
        for (int i = 0; i < 500; i++)
            sprintf(document + strlen(document), "<n%u a='%u' b=\"&lt;&e;\">%u &e; <![CDATA[<x>]]></n%u>", 1u + i % 7, number(99), number(9), 1u + i % 7);
        strcat(document, number(2) ? "</d>" : "</e>");
        XML_Parser parser = XML_ParserCreate(NULL);
        XML_SetHashSalt(parser, 7), XML_SetElementHandler(parser, start, end), XML_SetCharacterDataHandler(parser, text);
        int result = XML_Parse(parser, document, strlen(document), 1);
        printf("%d %d %08x %lu\n", result, XML_GetErrorCode(parser), total, (unsigned long)XML_GetCurrentLineNumber(parser));
        XML_ParserFree(parser);
    }
    return 0;
}
