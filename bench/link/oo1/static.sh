#!/bin/sh
# OO1 in C as a program of this system, from the sources of the Linux peer. Usage: static.sh - - OUTPUT
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
root=$here/../../..
folder=$(mktemp -d)
trap 'rm -rf -- "$folder"' EXIT
c() { gcc -std=gnu11 -O2 -fpie -fcf-protection=none -ffunction-sections -fdata-sections "$@"; }
cd "$folder"
for file in "$root"/modules/libc/*.c; do c -fno-builtin -c "$file"; done
gcc -c "$root/modules/libc/jump.s"
for file in oo1 oo1_client measure; do c -c "$root/bench/linux/$file.c"; done
c "-I$root/bench/linux" -c "$here/main.c"
c -c "$here/../eight/start.c"
gcc -static-pie -nostdlib -nostartfiles -Wl,--no-dynamic-linker,--build-id=none -Wl,-z,separate-code,-z,norelro \
    -Wl,-z,max-page-size=4096,-z,text,--gc-sections -o "$3" ./*.o
