#include "driver.h"
#include <cJSON.h>
int main(void) {
    for (int round = 0; round < 20; round++) {
        cJSON *all = cJSON_CreateObject();
        for (int i = 0; i < 200; i++) {
            char name[16];
            sprintf(name, "n%d", number(1000));
            cJSON *list = cJSON_AddArrayToObject(all, name);
            for (u32 k = number(9); k--;)
                cJSON_AddItemToArray(list, number(2) ? cJSON_CreateNumber((int)number(1000000) / 8.0) : cJSON_CreateString(name));
        }
        char *text = cJSON_Print(all);
        cJSON *back = cJSON_Parse(text);
        printf("%d %d %d\n", cJSON_Compare(all, back, 1), cJSON_GetArraySize(back), cJSON_HasObjectItem(back, "N7"));
        say("text", text, strlen(text));
        text[number(strlen(text))] = '}';
        cJSON *bad = cJSON_Parse(text);
        printf("%d\n", bad != 0);
        cJSON_Delete(all), cJSON_Delete(back), cJSON_Delete(bad), free(text);
    }
    return 0;
}
