/* The client as a module that calls the database inline. */
#include "server.h"
#include "server.inline.h"
#include "client.c"
