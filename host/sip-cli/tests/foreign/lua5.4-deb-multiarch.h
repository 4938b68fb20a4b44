/* Lua as Debian has it looks for packages in folders of the machine; the driver loads none. */
#define DEB_HOST_MULTIARCH ""
