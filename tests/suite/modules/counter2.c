/* The second version. */
#define STEP 100
#include "counter.c"
