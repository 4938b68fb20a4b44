#!/bin/sh
# The program of eight.c with its eight libraries as ELF shared objects, for Linux: a folder with the program, the
# libraries, the C library and the run-time linker of this host, at the paths where the program looks for them.
# Usage: dynamic.sh LUA_FOLDER SQLITE_FOLDER OUTPUT_FOLDER (the folders of the crates' C sources). Libraries are bound
# lazily, the linker's default; the functions of libm that Lua needs lie in its library, so that there are eight, as there are
# of modules.
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
root=$here/../../..
mkdir -p -- "$3"
out=$(CDPATH='' cd -- "$3" && pwd)
folder=$(mktemp -d)
trap 'rm -rf -- "$folder"' EXIT
c() { gcc -O2 -fPIC -fcf-protection=none -fno-builtin -ffunction-sections -fdata-sections "$@"; }
library() {
    name=$1
    shift
    gcc -shared -Wl,-z,lazy -Wl,--build-id=none -o "$out/lib/lib$name.so" -Wl,-soname,"lib$name.so" "$@"
}
rm -rf -- "$out/lib" "$out/lib64"
mkdir -p -- "$out/lib" "$out/lib64"
cd "$folder"
objects=""
for file in "$1"/*.c; do
    case $file in
    */lua.c | */luac.c | */onelua.c | */ltests.c) ;;
    *)
        c -c "$file"
        name=${file##*/}
        objects="$objects ${name%.c}.o"
        ;;
    esac
done
c -c "$root/modules/libc/math.c"
# shellcheck disable=SC2086  # a list of words
library lua $objects math.o
c -DSQLITE_THREADSAFE=0 -DSQLITE_OMIT_LOAD_EXTENSION -DSQLITE_OS_OTHER=1 -DSQLITE_TEMP_STORE=3 -c "$2/sqlite3.c"
c "-I$2" -c "$root/modules/sqlite/vfs.c"
library sqlite sqlite3.o vfs.o
for file in "$root"/tests/suite/modules/pong.c "$root"/tests/suite/modules/ping.c \
    "$root"/tests/suite/modules/counter.c "$here/steps.c" "$here/digest.c"; do
    c -c "$file"
    name=${file##*/}
    name=${name%.c}
    library "$name" "$name.o"
done
gcc -O2 -fpie -pie "-I$1" "-I$2" -Wl,-z,lazy -Wl,--build-id=none -Wl,--no-as-needed -o "$out/eight" "$here/eight.c" \
    "-L$out/lib" -lcounter -lping -lpong -lsteps -ldigest -lsqlite -llua
for file in "$out"/lib/*.so "$out/eight"; do strip "$file"; done
# Where the kernel and the run-time linker look: /lib is a default place, so no path has to be searched for.
linker=$(gcc -print-file-name=ld-linux-x86-64.so.2)
cp -L -- "$linker" "$out/lib64/ld-linux-x86-64.so.2"
cp -L -- "$(gcc -print-file-name=libc.so.6)" "$out/lib/libc.so.6"
