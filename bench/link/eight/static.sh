#!/bin/sh
# The program of eight.c with its libraries linked statically, as programs of this system are: a static-PIE image that
# relocates itself. Usage: static.sh LUA_FOLDER SQLITE_FOLDER OUTPUT (the folders of the crates' C sources).
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
root=$here/../../..
folder=$(mktemp -d)
trap 'rm -rf -- "$folder"' EXIT
c() { gcc -O2 -fpie -fcf-protection=none -fno-builtin -ffunction-sections -fdata-sections "$@"; }
cd "$folder"
for file in "$root"/modules/libc/*.c; do c -c "$file"; done
gcc -c "$root/modules/libc/jump.s"
for file in "$1"/*.c; do
    case $file in */lua.c | */luac.c | */onelua.c | */ltests.c) ;; *) c -c "$file" ;; esac
done
c -DSQLITE_THREADSAFE=0 -DSQLITE_OMIT_LOAD_EXTENSION -DSQLITE_OS_OTHER=1 -DSQLITE_TEMP_STORE=3 -c "$2/sqlite3.c"
c "-I$2" -c "$root/modules/sqlite/vfs.c"
for file in counter ping pong; do c -c "$root/tests/suite/modules/$file.c"; done
for file in steps digest start; do c -c "$here/$file.c"; done
c "-I$1" "-I$2" -c "$here/eight.c"
# Without --gc-sections: the libraries are whole, as the modules are.
gcc -static-pie -nostdlib -nostartfiles -Wl,--no-dynamic-linker,--build-id=none -Wl,-z,separate-code,-z,norelro \
    -Wl,-z,max-page-size=4096,-z,text -o "$3" ./*.o
