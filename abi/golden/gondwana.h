/* Made from the tables in abi/src; do not edit. SPDX-License-Identifier: MIT OR Apache-2.0 */
#ifndef GONDWANA_H
#define GONDWANA_H
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
#define _Static_assert static_assert
#endif

typedef struct { uint64_t error, value, value2; } gond_result;

#define GOND_E_Protection 1
#define GOND_E_BadAddress 2
#define GOND_E_BadArgument 3
#define GOND_E_NoMemory 4
#define GOND_E_DiskFull 5
#define GOND_E_LimitReached 6
#define GOND_E_InUse 7
#define GOND_E_TableFull 8
#define GOND_E_NotAnEntry 9
#define GOND_E_Locked 10
#define GOND_E_BadClist 11
#define GOND_E_NoSuchThread 12
#define GOND_E_NoSuchSemaphore 13
#define GOND_E_Deleted 14
#define GOND_E_TimedOut 15
#define GOND_E_CalleeFault 16
#define GOND_E_TooDeep 17
#define GOND_E_BadCall 18
#define GOND_E_CannotGrow 19
#define GOND_E_DiskError 20
#define GOND_E_Changed 21
#define GOND_E_NotInCall 22
#define GOND_E_NoHandler 23
#define GOND_E_NotPersistent 24
#define GOND_RIGHT_NONE UINT64_C(0)
#define GOND_RIGHT_X UINT64_C(1)
#define GOND_RIGHT_W UINT64_C(2)
#define GOND_RIGHT_R UINT64_C(4)
#define GOND_RIGHT_D UINT64_C(8)
#define GOND_RIGHT_P UINT64_C(16)
#define GOND_RIGHT_RW UINT64_C(6)
#define GOND_RIGHT_RX UINT64_C(5)
#define GOND_RIGHT_RWX UINT64_C(7)
#define GOND_RIGHT_OWNER UINT64_C(15)

/* Addresses */
#define GOND_PAGE UINT64_C(4096)
#define GOND_SLOT UINT64_C(0x200000)
#define GOND_PAGES_PER_SLOT UINT64_C(512)
#define GOND_ADDRESS_BITS UINT64_C(47)
#define GOND_USER_START UINT64_C(0x100000000)
#define GOND_USER_END UINT64_C(0x7fffffe00000)
#define GOND_ROOT_CLIST UINT64_C(0x100000000)
#define GOND_ROOT_DIRECTORY UINT64_C(0x100200000)
#define GOND_FIRST_PROGRAM UINT64_C(0x100400000)
#define GOND_FIRST_FREE UINT64_C(0x102000000)
#define GOND_STACKS_START UINT64_C(0x7f0000000000)
#define GOND_OBJECTS_END UINT64_C(0x7f0000000000)
#define GOND_OBJECT_BYTES_MAX UINT64_C(0x2000000000)
#define GOND_STACK_BYTES UINT64_C(0x100000)

/* What passes through memory */
#define GOND_CLIST_MAGIC UINT64_C(0x5453494c434e4f47)
#define GOND_CLIST_VERSION UINT64_C(1)
#define GOND_CLIST_SORTED UINT64_C(1)
#define GOND_APD_SLOTS UINT64_C(16)
#define GOND_CAPABILITIES_MAX UINT64_C(128)
#define GOND_PDX_MAX UINT64_C(16)
#define GOND_ENTRIES_MAX UINT64_C(192)
#define GOND_CALL_DEPTH_MAX UINT64_C(32)
#define GOND_PD_MERGE UINT64_C(0)
#define GOND_PD_EMPTY UINT64_C(1)
#define GOND_INFO_SET_BYTES UINT64_C(80)
#define GOND_OBJECT_PERSISTENT UINT64_C(1)
#define GOND_OBJECT_STACK UINT64_C(2)
#define GOND_INFO_SET_MODIFIED UINT64_C(1)
#define GOND_INFO_SET_TAG UINT64_C(2)
#define GOND_INFO_USED UINT64_C(4)
#define GOND_UNMAP_ZERO UINT64_C(0)
#define GOND_UNMAP_REPLACE UINT64_C(1)
#define GOND_STATUS_SYSTEM UINT64_C(0x100000000)
#define GOND_EXCEPTION_KILL UINT64_C(1)
#define GOND_EXCEPTION_PROTECTION UINT64_C(2)
#define GOND_EXCEPTION_ARITHMETIC UINT64_C(3)
#define GOND_EXCEPTION_UPCALL UINT64_C(4)
#define GOND_EXCEPTION_ILLEGAL UINT64_C(5)
#define GOND_EXCEPTION_RESOURCE UINT64_C(6)
#define GOND_EXCEPTION_DAMAGED UINT64_C(7)
#define GOND_EXCEPTION_INTERRUPT UINT64_C(8)
#define GOND_EXCEPTION_KINDS UINT64_C(9)
#define GOND_RESUME_RETRY UINT64_C(0)
#define GOND_RESUME_AT UINT64_C(1)
#define GOND_RESUME_END UINT64_C(2)
#define GOND_THREAD_READY UINT64_C(0)
#define GOND_THREAD_RUNNING UINT64_C(1)
#define GOND_THREAD_WAITING UINT64_C(2)
#define GOND_THREAD_SLEEPING UINT64_C(3)
#define GOND_THREAD_ENDED UINT64_C(4)
#define GOND_FLUSH_RANGES_MAX UINT64_C(16)
#define GOND_PRIORITY_MIN UINT64_C(0)
#define GOND_PRIORITY_DEFAULT UINT64_C(3)
#define GOND_PRIORITY_MAX UINT64_C(7)
#define GOND_TASK_FOREGROUND UINT64_C(256)
#define GOND_TOPIC_MEMORY UINT64_C(0)
#define GOND_TOPIC_STORE UINT64_C(1)
#define GOND_TOPIC_BOOT UINT64_C(2)
#define GOND_TOPIC_THREAD UINT64_C(3)
#define GOND_TOPIC_DOMAIN UINT64_C(4)
#define GOND_TOPIC_OBJECT UINT64_C(5)
#define GOND_TOPIC_SNAPSHOT UINT64_C(6)
#define GOND_TOPIC_LOG UINT64_C(7)
#define GOND_LOG_BYTES_MAX UINT64_C(1024)
#define GOND_CONTROL_CHECKPOINT UINT64_C(0)
#define GOND_CONTROL_POWER_OFF UINT64_C(1)
#define GOND_CONTROL_REBOOT UINT64_C(2)
#define GOND_CONTROL_SCRUB UINT64_C(3)
#define GOND_CONTROL_KEEP_SNAPSHOT UINT64_C(4)
#define GOND_CONTROL_DROP_SNAPSHOT UINT64_C(5)
#define GOND_CONTROL_DISK UINT64_C(6)
#define GOND_SNAPSHOT_NAME_BYTES UINT64_C(31)
#define GOND_STREAM_TERMINAL UINT64_C(0)
#define GOND_STREAM_CONTROL UINT64_C(1)
#define GOND_FOREVER UINT64_C(0xffffffffffffffff)
typedef struct {
    uint64_t address;
    uint64_t password;
} gond_capability;
_Static_assert(sizeof(gond_capability) == 16, "Capability");
_Static_assert(offsetof(gond_capability, address) == 0, "Capability.address");
_Static_assert(offsetof(gond_capability, password) == 8, "Capability.password");
typedef struct {
    uint64_t magic;
    uint64_t version;
    uint64_t flags;
    uint64_t count;
} gond_clist_header;
_Static_assert(sizeof(gond_clist_header) == 32, "ClistHeader");
_Static_assert(offsetof(gond_clist_header, magic) == 0, "ClistHeader.magic");
_Static_assert(offsetof(gond_clist_header, version) == 8, "ClistHeader.version");
_Static_assert(offsetof(gond_clist_header, flags) == 16, "ClistHeader.flags");
_Static_assert(offsetof(gond_clist_header, count) == 24, "ClistHeader.count");
typedef struct {
    uint64_t base;
    uint64_t bytes;
    uint64_t rights;
    uint64_t flags;
    uint64_t capabilities;
    uint64_t pdx;
    uint64_t resident;
    uint64_t created_ns;
    uint64_t modified_ns;
    uint64_t tag;
} gond_object_info;
_Static_assert(sizeof(gond_object_info) == 80, "ObjectInfo");
_Static_assert(offsetof(gond_object_info, base) == 0, "ObjectInfo.base");
_Static_assert(offsetof(gond_object_info, bytes) == 8, "ObjectInfo.bytes");
_Static_assert(offsetof(gond_object_info, rights) == 16, "ObjectInfo.rights");
_Static_assert(offsetof(gond_object_info, flags) == 24, "ObjectInfo.flags");
_Static_assert(offsetof(gond_object_info, capabilities) == 32, "ObjectInfo.capabilities");
_Static_assert(offsetof(gond_object_info, pdx) == 40, "ObjectInfo.pdx");
_Static_assert(offsetof(gond_object_info, resident) == 48, "ObjectInfo.resident");
_Static_assert(offsetof(gond_object_info, created_ns) == 56, "ObjectInfo.created_ns");
_Static_assert(offsetof(gond_object_info, modified_ns) == 64, "ObjectInfo.modified_ns");
_Static_assert(offsetof(gond_object_info, tag) == 72, "ObjectInfo.tag");
typedef struct {
    uint64_t thread;
    uint64_t status;
    uint64_t exception;
    uint64_t address;
    uint64_t instruction;
    uint64_t wanted;
    uint64_t had;
} gond_exit_report;
_Static_assert(sizeof(gond_exit_report) == 56, "ExitReport");
_Static_assert(offsetof(gond_exit_report, thread) == 0, "ExitReport.thread");
_Static_assert(offsetof(gond_exit_report, status) == 8, "ExitReport.status");
_Static_assert(offsetof(gond_exit_report, exception) == 16, "ExitReport.exception");
_Static_assert(offsetof(gond_exit_report, address) == 24, "ExitReport.address");
_Static_assert(offsetof(gond_exit_report, instruction) == 32, "ExitReport.instruction");
_Static_assert(offsetof(gond_exit_report, wanted) == 40, "ExitReport.wanted");
_Static_assert(offsetof(gond_exit_report, had) == 48, "ExitReport.had");
typedef struct {
    uint64_t thread;
    uint64_t task;
    uint64_t parent;
    uint64_t state;
    uint64_t priority;
    uint64_t domain;
    uint64_t depth;
    uint64_t time_ns;
    uint64_t share;
    uint64_t share_used;
} gond_thread_report;
_Static_assert(sizeof(gond_thread_report) == 80, "ThreadReport");
_Static_assert(offsetof(gond_thread_report, thread) == 0, "ThreadReport.thread");
_Static_assert(offsetof(gond_thread_report, task) == 8, "ThreadReport.task");
_Static_assert(offsetof(gond_thread_report, parent) == 16, "ThreadReport.parent");
_Static_assert(offsetof(gond_thread_report, state) == 24, "ThreadReport.state");
_Static_assert(offsetof(gond_thread_report, priority) == 32, "ThreadReport.priority");
_Static_assert(offsetof(gond_thread_report, domain) == 40, "ThreadReport.domain");
_Static_assert(offsetof(gond_thread_report, depth) == 48, "ThreadReport.depth");
_Static_assert(offsetof(gond_thread_report, time_ns) == 56, "ThreadReport.time_ns");
_Static_assert(offsetof(gond_thread_report, share) == 64, "ThreadReport.share");
_Static_assert(offsetof(gond_thread_report, share_used) == 72, "ThreadReport.share_used");
typedef struct {
    uint64_t domain;
    uint64_t task;
    uint64_t pdx_object;
    uint64_t clists;
    uint64_t locked;
    uint64_t objects;
    uint64_t tables;
    uint64_t threads;
} gond_domain_report;
_Static_assert(sizeof(gond_domain_report) == 64, "DomainReport");
_Static_assert(offsetof(gond_domain_report, domain) == 0, "DomainReport.domain");
_Static_assert(offsetof(gond_domain_report, task) == 8, "DomainReport.task");
_Static_assert(offsetof(gond_domain_report, pdx_object) == 16, "DomainReport.pdx_object");
_Static_assert(offsetof(gond_domain_report, clists) == 24, "DomainReport.clists");
_Static_assert(offsetof(gond_domain_report, locked) == 32, "DomainReport.locked");
_Static_assert(offsetof(gond_domain_report, objects) == 40, "DomainReport.objects");
_Static_assert(offsetof(gond_domain_report, tables) == 48, "DomainReport.tables");
_Static_assert(offsetof(gond_domain_report, threads) == 56, "DomainReport.threads");
typedef struct {
    uint64_t frames;
    uint64_t free;
    uint64_t kernel;
    uint64_t object_pages;
    uint64_t tables;
    uint64_t objects;
    uint64_t heap_bytes;
} gond_memory_report;
_Static_assert(sizeof(gond_memory_report) == 56, "MemoryReport");
_Static_assert(offsetof(gond_memory_report, frames) == 0, "MemoryReport.frames");
_Static_assert(offsetof(gond_memory_report, free) == 8, "MemoryReport.free");
_Static_assert(offsetof(gond_memory_report, kernel) == 16, "MemoryReport.kernel");
_Static_assert(offsetof(gond_memory_report, object_pages) == 24, "MemoryReport.object_pages");
_Static_assert(offsetof(gond_memory_report, tables) == 32, "MemoryReport.tables");
_Static_assert(offsetof(gond_memory_report, objects) == 40, "MemoryReport.objects");
_Static_assert(offsetof(gond_memory_report, heap_bytes) == 48, "MemoryReport.heap_bytes");
typedef struct {
    uint64_t blocks;
    uint64_t free;
    uint64_t reserved;
    uint64_t generation;
    uint64_t objects;
    uint64_t dirty;
    uint64_t replayed;
    uint64_t damaged;
    uint64_t cut;
    uint64_t checkpoints;
    uint64_t scrubbing;
    uint64_t scrub_seen;
    uint64_t scrub_all;
    uint64_t scrub_damaged;
    uint64_t scrubs;
    uint64_t reads;
    uint64_t writes;
    uint64_t flushes;
    uint64_t snapshots;
    uint64_t returning;
    uint64_t scrub_next_ns;
    uint64_t disk_blocks;
} gond_store_report;
_Static_assert(sizeof(gond_store_report) == 176, "StoreReport");
_Static_assert(offsetof(gond_store_report, blocks) == 0, "StoreReport.blocks");
_Static_assert(offsetof(gond_store_report, free) == 8, "StoreReport.free");
_Static_assert(offsetof(gond_store_report, reserved) == 16, "StoreReport.reserved");
_Static_assert(offsetof(gond_store_report, generation) == 24, "StoreReport.generation");
_Static_assert(offsetof(gond_store_report, objects) == 32, "StoreReport.objects");
_Static_assert(offsetof(gond_store_report, dirty) == 40, "StoreReport.dirty");
_Static_assert(offsetof(gond_store_report, replayed) == 48, "StoreReport.replayed");
_Static_assert(offsetof(gond_store_report, damaged) == 56, "StoreReport.damaged");
_Static_assert(offsetof(gond_store_report, cut) == 64, "StoreReport.cut");
_Static_assert(offsetof(gond_store_report, checkpoints) == 72, "StoreReport.checkpoints");
_Static_assert(offsetof(gond_store_report, scrubbing) == 80, "StoreReport.scrubbing");
_Static_assert(offsetof(gond_store_report, scrub_seen) == 88, "StoreReport.scrub_seen");
_Static_assert(offsetof(gond_store_report, scrub_all) == 96, "StoreReport.scrub_all");
_Static_assert(offsetof(gond_store_report, scrub_damaged) == 104, "StoreReport.scrub_damaged");
_Static_assert(offsetof(gond_store_report, scrubs) == 112, "StoreReport.scrubs");
_Static_assert(offsetof(gond_store_report, reads) == 120, "StoreReport.reads");
_Static_assert(offsetof(gond_store_report, writes) == 128, "StoreReport.writes");
_Static_assert(offsetof(gond_store_report, flushes) == 136, "StoreReport.flushes");
_Static_assert(offsetof(gond_store_report, snapshots) == 144, "StoreReport.snapshots");
_Static_assert(offsetof(gond_store_report, returning) == 152, "StoreReport.returning");
_Static_assert(offsetof(gond_store_report, scrub_next_ns) == 160, "StoreReport.scrub_next_ns");
_Static_assert(offsetof(gond_store_report, disk_blocks) == 168, "StoreReport.disk_blocks");
typedef struct {
    uint64_t name;
    uint64_t name2;
    uint64_t name3;
    uint64_t name4;
    uint64_t generation;
    uint64_t time_ns;
    uint64_t objects;
    uint64_t blocks;
    uint64_t damaged;
} gond_snapshot_report;
_Static_assert(sizeof(gond_snapshot_report) == 72, "SnapshotReport");
_Static_assert(offsetof(gond_snapshot_report, name) == 0, "SnapshotReport.name");
_Static_assert(offsetof(gond_snapshot_report, name2) == 8, "SnapshotReport.name2");
_Static_assert(offsetof(gond_snapshot_report, name3) == 16, "SnapshotReport.name3");
_Static_assert(offsetof(gond_snapshot_report, name4) == 24, "SnapshotReport.name4");
_Static_assert(offsetof(gond_snapshot_report, generation) == 32, "SnapshotReport.generation");
_Static_assert(offsetof(gond_snapshot_report, time_ns) == 40, "SnapshotReport.time_ns");
_Static_assert(offsetof(gond_snapshot_report, objects) == 48, "SnapshotReport.objects");
_Static_assert(offsetof(gond_snapshot_report, blocks) == 56, "SnapshotReport.blocks");
_Static_assert(offsetof(gond_snapshot_report, damaged) == 64, "SnapshotReport.damaged");
typedef struct {
    uint64_t script;
    uint64_t processors;
    uint64_t clean;
    uint64_t boot_ns;
    uint64_t ticks_per_us;
    uint64_t random_sources;
} gond_boot_report;
_Static_assert(sizeof(gond_boot_report) == 48, "BootReport");
_Static_assert(offsetof(gond_boot_report, script) == 0, "BootReport.script");
_Static_assert(offsetof(gond_boot_report, processors) == 8, "BootReport.processors");
_Static_assert(offsetof(gond_boot_report, clean) == 16, "BootReport.clean");
_Static_assert(offsetof(gond_boot_report, boot_ns) == 24, "BootReport.boot_ns");
_Static_assert(offsetof(gond_boot_report, ticks_per_us) == 32, "BootReport.ticks_per_us");
_Static_assert(offsetof(gond_boot_report, random_sources) == 40, "BootReport.random_sources");
typedef struct {
    uint64_t count;
    uint64_t locked;
    uint64_t slots[16];
} gond_apd_description;
_Static_assert(sizeof(gond_apd_description) == 144, "ApdDescription");
_Static_assert(offsetof(gond_apd_description, count) == 0, "ApdDescription.count");
_Static_assert(offsetof(gond_apd_description, locked) == 8, "ApdDescription.locked");
_Static_assert(offsetof(gond_apd_description, slots) == 16, "ApdDescription.slots");

/* The start page */
#define GOND_START_MAGIC UINT64_C(0x5452415453444e47)
#define GOND_ARGUMENTS_OFFSET UINT64_C(256)
#define GOND_ARGUMENTS_BYTES UINT64_C(3840)
#define GOND_MODULE_START_OFFSET UINT64_C(64)
#define GOND_MODULE_START_MAGIC UINT64_C(0x314d5452444e4f47)
#define GOND_MODULE_START_EAGER UINT64_C(1)
#define GOND_IMAGE_ENTRY_AT UINT64_C(24)
typedef struct {
    uint64_t magic;
    uint64_t image;
    uint64_t image_bytes;
    uint64_t root_directory;
    uint64_t argument_count;
    uint64_t argument_bytes;
    uint64_t word;
} gond_start;
_Static_assert(sizeof(gond_start) == 56, "Start");
_Static_assert(offsetof(gond_start, magic) == 0, "Start.magic");
_Static_assert(offsetof(gond_start, image) == 8, "Start.image");
_Static_assert(offsetof(gond_start, image_bytes) == 16, "Start.image_bytes");
_Static_assert(offsetof(gond_start, root_directory) == 24, "Start.root_directory");
_Static_assert(offsetof(gond_start, argument_count) == 32, "Start.argument_count");
_Static_assert(offsetof(gond_start, argument_bytes) == 40, "Start.argument_bytes");
_Static_assert(offsetof(gond_start, word) == 48, "Start.word");
typedef struct {
    uint64_t jump;
    uint64_t entry;
    uint64_t magic;
    uint64_t module;
    uint64_t module_bytes;
    uint64_t shelf;
    uint64_t shelf_bytes;
    uint64_t flags;
} gond_module_start;
_Static_assert(sizeof(gond_module_start) == 64, "ModuleStart");
_Static_assert(offsetof(gond_module_start, jump) == 0, "ModuleStart.jump");
_Static_assert(offsetof(gond_module_start, entry) == 8, "ModuleStart.entry");
_Static_assert(offsetof(gond_module_start, magic) == 16, "ModuleStart.magic");
_Static_assert(offsetof(gond_module_start, module) == 24, "ModuleStart.module");
_Static_assert(offsetof(gond_module_start, module_bytes) == 32, "ModuleStart.module_bytes");
_Static_assert(offsetof(gond_module_start, shelf) == 40, "ModuleStart.shelf");
_Static_assert(offsetof(gond_module_start, shelf_bytes) == 48, "ModuleStart.shelf_bytes");
_Static_assert(offsetof(gond_module_start, flags) == 56, "ModuleStart.flags");

/* The kernel page */
#define GOND_KERNEL_PAGE UINT64_C(0xffffffff40000000)
#define GOND_KERNEL_PAGE_MAGIC UINT64_C(0x454741504e574447)
#define GOND_KERNEL_PAGE_VERSION UINT64_C(1)
#define GOND_FEATURE_SERVER_OUTSIDE UINT64_C(1)
#define GOND_FEATURE_SERVER UINT64_C(2)
#define GOND_SYSTEM_CALL_STUB UINT64_C(2048)
#define GOND_DOMAINS_OFFSET UINT64_C(1024)
#define GOND_DOMAIN_ECHO UINT64_C(0)
#define GOND_DOMAIN_RANDOM UINT64_C(1)
#define GOND_DOMAINS UINT64_C(2)
typedef struct {
    uint64_t magic;
    uint64_t version;
    uint64_t features;
    uint64_t start_ticks;
    uint64_t ns_scale;
    uint64_t boot_time_ns;
    uint64_t domain_count;
} gond_kernel_page;
_Static_assert(sizeof(gond_kernel_page) == 56, "KernelPage");
_Static_assert(offsetof(gond_kernel_page, magic) == 0, "KernelPage.magic");
_Static_assert(offsetof(gond_kernel_page, version) == 8, "KernelPage.version");
_Static_assert(offsetof(gond_kernel_page, features) == 16, "KernelPage.features");
_Static_assert(offsetof(gond_kernel_page, start_ticks) == 24, "KernelPage.start_ticks");
_Static_assert(offsetof(gond_kernel_page, ns_scale) == 32, "KernelPage.ns_scale");
_Static_assert(offsetof(gond_kernel_page, boot_time_ns) == 40, "KernelPage.boot_time_ns");
_Static_assert(offsetof(gond_kernel_page, domain_count) == 48, "KernelPage.domain_count");

/* The host */
#define GOND_HOST_HEAP_PART UINT64_C(8)
#define GOND_HOST_HEAP_MOST UINT64_C(0x40000000)
#define GOND_HOST_EXIT_PORT UINT64_C(244)
#define GOND_HOST_LOG_PORT UINT64_C(233)
#define GOND_HOST_DEBUGGER_PORT UINT64_C(1000)
#define GOND_HOST_DEBUGGER_LINE UINT64_C(5)
#define GOND_HOST_DEBUGGER_PROMPT "kernel> "
#define GOND_HOST_EXIT_SUCCESS UINT64_C(16)
#define GOND_HOST_EXIT_FAILURE UINT64_C(17)
#define GOND_HOST_EXIT_PANIC UINT64_C(18)
#define GOND_HOST_EXIT_REBOOT UINT64_C(19)
#define GOND_HOST_PANIC "panic: "
#define GOND_HOST_PANIC_REGISTERS "panic registers:"
#define GOND_HOST_PANIC_STACK "panic stack"
#define GOND_HOST_PANIC_TRACE "panic trace"
#define GOND_HOST_CANNOT_START "gondwana cannot start: "
#define GOND_HOST_PANIC_END "panic end"
#define GOND_HOST_SCRIPT_WORD "script"
#define GOND_HOST_SERVER_KERNEL "kernel"
#define GOND_HOST_SERVER_USER "user"
#define GOND_HOST_SERVER_CRASHED "the server outside of the kernel has crashed"
#define GOND_HOST_BARE_WORD "bare"
#define GOND_HOST_READY "ready"
#define GOND_HOST_STATUS "status"
#define GOND_HOST_LINE "line"
#define GOND_HOST_END "end"
#define GOND_HOST_LINE_BYTES UINT64_C(4000)

/* The bare µ-kernel */
#define GOND_NUCLEUS_FIRST_CALL UINT64_C(256)
#define GOND_NUCLEUS_ANYONE UINT64_C(0xffffffffffffffff)
#define GOND_NUCLEUS_REGISTER_WORDS UINT64_C(4)
#define GOND_NUCLEUS_MESSAGE_WORDS UINT64_C(64)
#define GOND_NUCLEUS_ITEMS_MAX UINT64_C(8)
#define GOND_NUCLEUS_TAG_WORDS UINT64_C(127)
#define GOND_NUCLEUS_TAG_ITEMS_SHIFT UINT64_C(8)
#define GOND_NUCLEUS_TAG_KERNEL UINT64_C(0x8000)
#define GOND_NUCLEUS_TAG_LABEL_SHIFT UINT64_C(16)
#define GOND_NUCLEUS_LABEL_FAULT UINT64_C(1)
#define GOND_NUCLEUS_LABEL_EXCEPTION UINT64_C(2)
#define GOND_NUCLEUS_LABEL_INTERRUPT UINT64_C(3)
#define GOND_NUCLEUS_NEVER UINT64_C(0xffffffff)
#define GOND_NUCLEUS_NO_TIMEOUTS UINT64_C(0xffffffffffffffff)
#define GOND_NUCLEUS_MAP UINT64_C(0)
#define GOND_NUCLEUS_GRANT UINT64_C(1)
#define GOND_NUCLEUS_LINK UINT64_C(2)
#define GOND_NUCLEUS_FPAGE_PORTS UINT64_C(8)
#define GOND_NUCLEUS_FPAGE_SIZE_SHIFT UINT64_C(4)
#define GOND_NUCLEUS_MESSAGE_AREA UINT64_C(0x7f8000000000)
#define GOND_NUCLEUS_BUFFER_REGISTERS UINT64_C(64)
#define GOND_NUCLEUS_EXCHANGE_STOP UINT64_C(1)
#define GOND_NUCLEUS_EXCHANGE_READ UINT64_C(2)
#define GOND_NUCLEUS_EXCHANGE_WRITE UINT64_C(4)
#define GOND_NUCLEUS_EXCHANGE_START UINT64_C(8)
#define GOND_NUCLEUS_THREAD_READY UINT64_C(0)
#define GOND_NUCLEUS_THREAD_STOPPED UINT64_C(1)
#define GOND_NUCLEUS_THREAD_SENDING UINT64_C(2)
#define GOND_NUCLEUS_THREAD_RECEIVING UINT64_C(3)
#define GOND_NUCLEUS_THREAD_FAULTED UINT64_C(4)
#define GOND_NUCLEUS_INTERRUPTS UINT64_C(32)
#define GOND_NUCLEUS_INTERRUPT_FIRST_MESSAGE UINT64_C(24)
#define GOND_NUCLEUS_ROOT_GIVES_BELOW UINT64_C(0x500000000000)
#define GOND_NUCLEUS_ROOT_IMAGE UINT64_C(0x600000000000)
#define GOND_NUCLEUS_ROOT_STACK_TOP UINT64_C(0x5fffffe00000)
#define GOND_NUCLEUS_ROOT_STACK_BYTES UINT64_C(0x40000)
#define GOND_NUCLEUS_ROOT_MAGIC UINT64_C(0x544f4f524e574447)
#define GOND_NUCLEUS_ROOT_MEMORY_OFFSET UINT64_C(256)
#define GOND_NUCLEUS_ROOT_COMMAND_OFFSET UINT64_C(1024)
#define GOND_NUCLEUS_ROOT_COMMAND_BYTES UINT64_C(2048)
typedef struct {
    uint64_t r15;
    uint64_t r14;
    uint64_t r13;
    uint64_t r12;
    uint64_t r11;
    uint64_t r10;
    uint64_t r9;
    uint64_t r8;
    uint64_t rbp;
    uint64_t rdi;
    uint64_t rsi;
    uint64_t rdx;
    uint64_t rcx;
    uint64_t rbx;
    uint64_t rax;
    uint64_t rip;
    uint64_t rflags;
    uint64_t rsp;
} gond_registers;
_Static_assert(sizeof(gond_registers) == 144, "Registers");
_Static_assert(offsetof(gond_registers, r15) == 0, "Registers.r15");
_Static_assert(offsetof(gond_registers, r14) == 8, "Registers.r14");
_Static_assert(offsetof(gond_registers, r13) == 16, "Registers.r13");
_Static_assert(offsetof(gond_registers, r12) == 24, "Registers.r12");
_Static_assert(offsetof(gond_registers, r11) == 32, "Registers.r11");
_Static_assert(offsetof(gond_registers, r10) == 40, "Registers.r10");
_Static_assert(offsetof(gond_registers, r9) == 48, "Registers.r9");
_Static_assert(offsetof(gond_registers, r8) == 56, "Registers.r8");
_Static_assert(offsetof(gond_registers, rbp) == 64, "Registers.rbp");
_Static_assert(offsetof(gond_registers, rdi) == 72, "Registers.rdi");
_Static_assert(offsetof(gond_registers, rsi) == 80, "Registers.rsi");
_Static_assert(offsetof(gond_registers, rdx) == 88, "Registers.rdx");
_Static_assert(offsetof(gond_registers, rcx) == 96, "Registers.rcx");
_Static_assert(offsetof(gond_registers, rbx) == 104, "Registers.rbx");
_Static_assert(offsetof(gond_registers, rax) == 112, "Registers.rax");
_Static_assert(offsetof(gond_registers, rip) == 120, "Registers.rip");
_Static_assert(offsetof(gond_registers, rflags) == 128, "Registers.rflags");
_Static_assert(offsetof(gond_registers, rsp) == 136, "Registers.rsp");
typedef struct {
    uint64_t magic;
    uint64_t image;
    uint64_t image_bytes;
    uint64_t memory_count;
    uint64_t command_bytes;
    uint64_t firmware;
} gond_root;
_Static_assert(sizeof(gond_root) == 48, "Root");
_Static_assert(offsetof(gond_root, magic) == 0, "Root.magic");
_Static_assert(offsetof(gond_root, image) == 8, "Root.image");
_Static_assert(offsetof(gond_root, image_bytes) == 16, "Root.image_bytes");
_Static_assert(offsetof(gond_root, memory_count) == 24, "Root.memory_count");
_Static_assert(offsetof(gond_root, command_bytes) == 32, "Root.command_bytes");
_Static_assert(offsetof(gond_root, firmware) == 40, "Root.firmware");

/* The server outside of the kernel */
#define GOND_MACHINE_WINDOW UINT64_C(0x400000000000)
#define GOND_MACHINE_WINDOW_BYTES UINT64_C(0x8000000000)
#define GOND_MACHINE_FIRST_MACHINE_CALL UINT64_C(512)
typedef struct {
    uint64_t heap;
    uint64_t heap_bytes;
    uint64_t disk_message_address;
    uint64_t disk_message_data;
} gond_surroundings;
_Static_assert(sizeof(gond_surroundings) == 32, "Surroundings");
_Static_assert(offsetof(gond_surroundings, heap) == 0, "Surroundings.heap");
_Static_assert(offsetof(gond_surroundings, heap_bytes) == 8, "Surroundings.heap_bytes");
_Static_assert(offsetof(gond_surroundings, disk_message_address) == 16, "Surroundings.disk_message_address");
_Static_assert(offsetof(gond_surroundings, disk_message_data) == 24, "Surroundings.disk_message_data");

/* rbx, rbp and r12 to r15 do not survive a call: the stub keeps rbx and rbp, the compiler the rest. */
static inline gond_result gond_call(uint64_t n, uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e, uint64_t f) {
    gond_result r; register uint64_t r10 __asm__("r10") = d, r8 __asm__("r8") = e, r9 __asm__("r9") = f;
    __asm__ volatile("sub $128, %%rsp; push %%rbx; push %%rbp; syscall; pop %%rbp; pop %%rbx; add $128, %%rsp"
        : "=a"(r.error), "=d"(r.value), "=S"(r.value2), "+D"(a), "+r"(r10), "+r"(r8), "+r"(r9)
        : "a"(n), "S"(b), "d"(c) : "rcx", "r11", "r12", "r13", "r14", "r15", "memory", "cc");
    return r;
}

static inline gond_result ThreadMyId(void) { return gond_call(0, 0, 0, 0, 0, 0, 0); }
static inline gond_result PdxCall(uint64_t entry, uint64_t parameter0, uint64_t pd, uint64_t parameter1, uint64_t parameter2, uint64_t parameter3) { return gond_call(1, entry, parameter0, pd, parameter1, parameter2, parameter3); }
static inline gond_result PdxReturn(uint64_t result, uint64_t result2) { return gond_call(2, result, result2, 0, 0, 0, 0); }
static inline gond_result DomainCall(uint64_t entry, uint64_t parameter0, uint64_t parameter1, uint64_t parameter2, uint64_t parameter3) { return gond_call(3, entry, parameter0, parameter1, parameter2, parameter3, 0); }
static inline gond_result ObjCreate(uint64_t bytes, uint64_t password) { return gond_call(8, bytes, password, 0, 0, 0, 0); }
static inline gond_result ObjDelete(uint64_t address) { return gond_call(9, address, 0, 0, 0, 0, 0); }
static inline gond_result ObjResize(uint64_t address, uint64_t bytes) { return gond_call(10, address, bytes, 0, 0, 0, 0); }
static inline gond_result ObjPasswd(uint64_t address, uint64_t password, uint64_t rights) { return gond_call(11, address, password, rights, 0, 0, 0); }
static inline gond_result ObjInfo(uint64_t address, uint64_t flags, uint64_t info, uint64_t room) { return gond_call(12, address, flags, info, room, 0, 0); }
static inline gond_result ObjCrePdx(uint64_t address, uint64_t password, uint64_t clist, uint64_t entries, uint64_t count) { return gond_call(13, address, password, clist, entries, count, 0); }
static inline gond_result KeepObject(uint64_t address) { return gond_call(14, address, 0, 0, 0, 0, 0); }
static inline gond_result ObjClone(uint64_t source, uint64_t extra_bytes, uint64_t password) { return gond_call(15, source, extra_bytes, password, 0, 0, 0); }
static inline gond_result ObjRetire(uint64_t address) { return gond_call(16, address, 0, 0, 0, 0, 0); }
static inline gond_result PageCopy(uint64_t from, uint64_t to, uint64_t pages) { return gond_call(24, from, to, pages, 0, 0, 0); }
static inline gond_result PageUnMap(uint64_t page, uint64_t pages, uint64_t disposition) { return gond_call(25, page, pages, disposition, 0, 0, 0); }
static inline gond_result PageFlush(uint64_t page, uint64_t pages) { return gond_call(26, page, pages, 0, 0, 0, 0); }
static inline gond_result PageLimit(uint64_t page, uint64_t pages, uint64_t rights) { return gond_call(27, page, pages, rights, 0, 0, 0); }
static inline gond_result PageFlushAll(uint64_t ranges, uint64_t count) { return gond_call(28, ranges, count, 0, 0, 0, 0); }
static inline gond_result ApdInsert(uint64_t slot, uint64_t clist) { return gond_call(32, slot, clist, 0, 0, 0, 0); }
static inline gond_result ApdDelete(uint64_t slot) { return gond_call(33, slot, 0, 0, 0, 0, 0); }
static inline gond_result ApdGet(uint64_t description, uint64_t room) { return gond_call(34, description, room, 0, 0, 0, 0); }
static inline gond_result ApdLock(uint64_t slot) { return gond_call(35, slot, 0, 0, 0, 0, 0); }
static inline gond_result ApdLookup(uint64_t address, uint64_t rights) { return gond_call(36, address, rights, 0, 0, 0, 0); }
static inline gond_result ApdFlush(void) { return gond_call(37, 0, 0, 0, 0, 0, 0); }
static inline gond_result TaskCreate(uint64_t entry, uint64_t parameter, uint64_t apd, uint64_t limit_pages, uint64_t priority, uint64_t limit_share) { return gond_call(40, entry, parameter, apd, limit_pages, priority, limit_share); }
static inline gond_result ThreadCreate(uint64_t entry, uint64_t parameter, uint64_t priority) { return gond_call(41, entry, parameter, priority, 0, 0, 0); }
static inline gond_result ThreadDelete(uint64_t thread, uint64_t status) { return gond_call(42, thread, status, 0, 0, 0, 0); }
static inline gond_result ThreadWait(uint64_t thread, uint64_t timeout_ns, uint64_t report, uint64_t room) { return gond_call(43, thread, timeout_ns, report, room, 0, 0); }
static inline gond_result ThreadSleep(uint64_t thread, uint64_t ns) { return gond_call(44, thread, ns, 0, 0, 0, 0); }
static inline gond_result ThreadResume(uint64_t thread) { return gond_call(45, thread, 0, 0, 0, 0, 0); }
static inline gond_result ThreadInfo(uint64_t thread, uint64_t report, uint64_t room) { return gond_call(46, thread, report, room, 0, 0, 0); }
static inline gond_result ExcptReg(uint64_t kind, uint64_t handler) { return gond_call(47, kind, handler, 0, 0, 0, 0); }
static inline gond_result ExcptReturn(uint64_t action, uint64_t address) { return gond_call(48, action, address, 0, 0, 0, 0); }
static inline gond_result SemCreate(uint64_t address, uint64_t value) { return gond_call(56, address, value, 0, 0, 0, 0); }
static inline gond_result SemDelete(uint64_t address) { return gond_call(57, address, 0, 0, 0, 0, 0); }
static inline gond_result SemWait(uint64_t address, uint64_t timeout_ns) { return gond_call(58, address, timeout_ns, 0, 0, 0, 0); }
static inline gond_result SemSignal(uint64_t address) { return gond_call(59, address, 0, 0, 0, 0, 0); }
static inline gond_result AddressWait(uint64_t address, uint64_t expected, uint64_t timeout_ns) { return gond_call(60, address, expected, timeout_ns, 0, 0, 0); }
static inline gond_result AddressWake(uint64_t address, uint64_t count) { return gond_call(61, address, count, 0, 0, 0, 0); }
static inline gond_result ConsoleWrite(uint64_t stream, uint64_t address, uint64_t bytes) { return gond_call(72, stream, address, bytes, 0, 0, 0); }
static inline gond_result ConsoleRead(uint64_t stream, uint64_t address, uint64_t bytes) { return gond_call(73, stream, address, bytes, 0, 0, 0); }
static inline gond_result ConsoleForeground(uint64_t thread) { return gond_call(74, thread, 0, 0, 0, 0, 0); }
static inline gond_result ClockRead(void) { return gond_call(75, 0, 0, 0, 0, 0, 0); }
static inline gond_result RandomRead(void) { return gond_call(76, 0, 0, 0, 0, 0, 0); }
static inline gond_result SystemInfo(uint64_t topic, uint64_t index, uint64_t buffer, uint64_t room) { return gond_call(77, topic, index, buffer, room, 0, 0); }
static inline gond_result SystemControl(uint64_t operation, uint64_t argument, uint64_t second, uint64_t third, uint64_t fourth) { return gond_call(78, operation, argument, second, third, fourth, 0); }
static inline gond_result NucleusLogWrite(uint64_t bytes, uint64_t count) { return gond_call(256, bytes, count, 0, 0, 0, 0); }
static inline gond_result NucleusMachineStop(uint64_t exit) { return gond_call(257, exit, 0, 0, 0, 0, 0); }
static inline gond_result NucleusThreadSelf(void) { return gond_call(258, 0, 0, 0, 0, 0, 0); }
static inline gond_result NucleusClockNow(void) { return gond_call(259, 0, 0, 0, 0, 0, 0); }
static inline gond_result NucleusSpaceCreate(uint64_t quota, uint64_t pager, uint64_t handler, uint64_t supervisor) { return gond_call(264, quota, pager, handler, supervisor, 0, 0); }
static inline gond_result NucleusSpaceDelete(uint64_t space) { return gond_call(265, space, 0, 0, 0, 0, 0); }
static inline gond_result NucleusSpaceControl(uint64_t space, uint64_t pager, uint64_t handler, uint64_t supervisor) { return gond_call(266, space, pager, handler, supervisor, 0, 0); }
static inline gond_result NucleusThreadCreate(uint64_t space, uint64_t rip, uint64_t rsp, uint64_t parameter, uint64_t priority) { return gond_call(272, space, rip, rsp, parameter, priority, 0); }
static inline gond_result NucleusThreadDelete(uint64_t thread) { return gond_call(273, thread, 0, 0, 0, 0, 0); }
static inline gond_result NucleusThreadExchange(uint64_t thread, uint64_t what) { return gond_call(274, thread, what, 0, 0, 0, 0); }
static inline gond_result NucleusThreadPriority(uint64_t thread, uint64_t priority) { return gond_call(275, thread, priority, 0, 0, 0, 0); }
static inline gond_result NucleusYield(void) { return gond_call(276, 0, 0, 0, 0, 0, 0); }
static inline gond_result NucleusIpc(uint64_t to, uint64_t from, uint64_t tag, uint64_t timeouts, uint64_t window) { return gond_call(280, to, from, tag, timeouts, window, 0); }
static inline gond_result NucleusMap(uint64_t source, uint64_t space, uint64_t window, uint64_t how) { return gond_call(288, source, space, window, how, 0, 0); }
static inline gond_result NucleusFlush(uint64_t fpage, uint64_t rights, uint64_t own) { return gond_call(289, fpage, rights, own, 0, 0, 0); }
static inline gond_result NucleusInterruptBind(uint64_t interrupt, uint64_t thread) { return gond_call(296, interrupt, thread, 0, 0, 0, 0); }
static inline gond_result NucleusInterruptMessage(uint64_t interrupt) { return gond_call(297, interrupt, 0, 0, 0, 0, 0); }
static inline gond_result NucleusKernelCheck(void) { return gond_call(304, 0, 0, 0, 0, 0, 0); }
static inline gond_result MachineAnswerReturn(uint64_t error, uint64_t value, uint64_t value2) { return gond_call(512, error, value, value2, 0, 0, 0); }
static inline gond_result MachineAnswerBlock(uint64_t kind, uint64_t key, uint64_t deadline) { return gond_call(513, kind, key, deadline, 0, 0, 0); }
static inline gond_result MachineAnswerResume(void) { return gond_call(514, 0, 0, 0, 0, 0, 0); }
static inline gond_result MachineAnswerGone(void) { return gond_call(515, 0, 0, 0, 0, 0, 0); }
static inline gond_result MachineReady(uint64_t entry, uint64_t stack, uint64_t clean) { return gond_call(516, entry, stack, clean, 0, 0, 0); }
static inline gond_result MachineGiveUp(uint64_t bytes) { return gond_call(517, bytes, 0, 0, 0, 0, 0); }
static inline gond_result MachineSurroundings(void) { return gond_call(518, 0, 0, 0, 0, 0, 0); }
static inline gond_result MachineMapDevice(uint64_t physical, uint64_t bytes) { return gond_call(519, physical, bytes, 0, 0, 0, 0); }
static inline gond_result MachinePortRead(uint64_t port, uint64_t bytes) { return gond_call(520, port, bytes, 0, 0, 0, 0); }
static inline gond_result MachinePortWrite(uint64_t port, uint64_t bytes, uint64_t value) { return gond_call(521, port, bytes, value, 0, 0, 0); }
static inline gond_result MachineAnswerAgain(void) { return gond_call(522, 0, 0, 0, 0, 0, 0); }
static inline gond_result MachineUnfinished(uint64_t flag) { return gond_call(523, flag, 0, 0, 0, 0, 0); }
static inline gond_result MachineFrameZeroed(void) { return gond_call(528, 0, 0, 0, 0, 0, 0); }
static inline gond_result MachineFrameAny(void) { return gond_call(529, 0, 0, 0, 0, 0, 0); }
static inline gond_result MachineFrameShare(uint64_t frame) { return gond_call(530, frame, 0, 0, 0, 0, 0); }
static inline gond_result MachineFrameRelease(uint64_t frame) { return gond_call(531, frame, 0, 0, 0, 0, 0); }
static inline gond_result MachineFrameReferences(uint64_t frame) { return gond_call(532, frame, 0, 0, 0, 0, 0); }
static inline gond_result MachineFrameCounts(void) { return gond_call(533, 0, 0, 0, 0, 0, 0); }
static inline gond_result MachineKernelFrames(void) { return gond_call(534, 0, 0, 0, 0, 0, 0); }
static inline gond_result MachineFrameHold(uint64_t frame) { return gond_call(535, frame, 0, 0, 0, 0, 0); }
static inline gond_result MachineFrameLetGo(uint64_t frame) { return gond_call(536, frame, 0, 0, 0, 0, 0); }
static inline gond_result MachineLeafCreate(void) { return gond_call(544, 0, 0, 0, 0, 0, 0); }
static inline gond_result MachineLeafDestroy(uint64_t leaf) { return gond_call(545, leaf, 0, 0, 0, 0, 0); }
static inline gond_result MachineLeafSet(uint64_t leaf, uint64_t index, uint64_t entry) { return gond_call(546, leaf, index, entry, 0, 0, 0); }
static inline gond_result MachineLeafShare(uint64_t from, uint64_t index, uint64_t count, uint64_t to, uint64_t at) { return gond_call(547, from, index, count, to, at, 0); }
static inline gond_result MachineLeafClear(uint64_t leaf, uint64_t index, uint64_t count) { return gond_call(548, leaf, index, count, 0, 0, 0); }
static inline gond_result MachineSpaceCreate(void) { return gond_call(552, 0, 0, 0, 0, 0, 0); }
static inline gond_result MachineSpaceDestroy(uint64_t space) { return gond_call(553, space, 0, 0, 0, 0, 0); }
static inline gond_result MachineLink(uint64_t space, uint64_t slot, uint64_t leaf, uint64_t rights) { return gond_call(554, space, slot, leaf, rights, 0, 0); }
static inline gond_result MachineUnlink(uint64_t space, uint64_t slot) { return gond_call(555, space, slot, 0, 0, 0, 0); }
static inline gond_result MachineFlushSpace(uint64_t space) { return gond_call(556, space, 0, 0, 0, 0, 0); }
static inline gond_result MachineFlushPage(uint64_t address) { return gond_call(557, address, 0, 0, 0, 0, 0); }
static inline gond_result MachineFlushEverything(void) { return gond_call(558, 0, 0, 0, 0, 0, 0); }
static inline gond_result MachineSpaceTables(uint64_t space) { return gond_call(559, space, 0, 0, 0, 0, 0); }
static inline gond_result MachineThreadCreate(uint64_t space, uint64_t rip, uint64_t rsp, uint64_t priority, uint64_t share) { return gond_call(560, space, rip, rsp, priority, share, 0); }
static inline gond_result MachineThreadDestroy(uint64_t thread) { return gond_call(561, thread, 0, 0, 0, 0, 0); }
static inline gond_result MachineThreadWake(uint64_t thread, uint64_t resumed) { return gond_call(562, thread, resumed, 0, 0, 0, 0); }
static inline gond_result MachineThreadSuspend(uint64_t thread) { return gond_call(563, thread, 0, 0, 0, 0, 0); }
static inline gond_result MachineWake(uint64_t kind, uint64_t key, uint64_t count) { return gond_call(564, kind, key, count, 0, 0, 0); }
static inline gond_result MachineThreadIsReady(uint64_t thread) { return gond_call(565, thread, 0, 0, 0, 0, 0); }
static inline gond_result MachineThreadSpace(uint64_t thread) { return gond_call(566, thread, 0, 0, 0, 0, 0); }
static inline gond_result MachineThreadContext(uint64_t thread) { return gond_call(567, thread, 0, 0, 0, 0, 0); }
static inline gond_result MachineThreadSetContext(uint64_t thread) { return gond_call(568, thread, 0, 0, 0, 0, 0); }
static inline gond_result MachineThreadDropOperation(uint64_t thread) { return gond_call(569, thread, 0, 0, 0, 0, 0); }
static inline gond_result MachineThreadTime(uint64_t thread) { return gond_call(570, thread, 0, 0, 0, 0, 0); }
static inline gond_result MachineThreadSetPriority(uint64_t thread, uint64_t priority) { return gond_call(571, thread, priority, 0, 0, 0, 0); }
static inline gond_result MachineSpaceTrim(uint64_t space, uint64_t work) { return gond_call(572, space, work, 0, 0, 0, 0); }
static inline gond_result MachineWakeWords(uint64_t from, uint64_t to) { return gond_call(573, from, to, 0, 0, 0, 0); }
static inline gond_result MachineShareOpen(uint64_t share, uint64_t parent, uint64_t bound) { return gond_call(574, share, parent, bound, 0, 0, 0); }
static inline gond_result MachineShareTold(uint64_t share) { return gond_call(575, share, 0, 0, 0, 0, 0); }
static inline gond_result MachinePortalEnter(uint64_t thread, uint64_t callee, uint64_t entry, uint64_t all) { return gond_call(576, thread, callee, entry, all, 0, 0); }
static inline gond_result MachinePortalLeave(uint64_t thread, uint64_t error, uint64_t value, uint64_t value2) { return gond_call(577, thread, error, value, value2, 0, 0); }
static inline gond_result MachinePortalDepth(uint64_t thread) { return gond_call(578, thread, 0, 0, 0, 0, 0); }
static inline gond_result MachinePortalFrame(uint64_t thread, uint64_t index) { return gond_call(579, thread, index, 0, 0, 0, 0); }
static inline gond_result MachinePortalCache(uint64_t caller, uint64_t entry, uint64_t pd, uint64_t callee) { return gond_call(580, caller, entry, pd, callee, 0, 0); }
static inline gond_result MachinePortalForget(uint64_t which, uint64_t space) { return gond_call(581, which, space, 0, 0, 0, 0); }
static inline gond_result MachinePortalInterceptReturn(uint64_t thread, uint64_t wanted) { return gond_call(582, thread, wanted, 0, 0, 0, 0); }
static inline gond_result MachinePortalAddStack(uint64_t callee, uint64_t top) { return gond_call(583, callee, top, 0, 0, 0, 0); }
static inline gond_result MachinePortalFreeStacks(uint64_t callee) { return gond_call(584, callee, 0, 0, 0, 0, 0); }
static inline gond_result MachineOldest(uint64_t kind, uint64_t key) { return gond_call(585, kind, key, 0, 0, 0, 0); }
static inline gond_result MachineThreadAnswer(uint64_t thread, uint64_t value, uint64_t value2) { return gond_call(586, thread, value, value2, 0, 0, 0); }
static inline gond_result MachineThreadWaited(uint64_t thread) { return gond_call(587, thread, 0, 0, 0, 0, 0); }
static inline gond_result MachineNow(void) { return gond_call(592, 0, 0, 0, 0, 0, 0); }
static inline gond_result MachineRandom(void) { return gond_call(593, 0, 0, 0, 0, 0, 0); }
static inline gond_result MachineConsoleWrite(uint64_t stream, uint64_t bytes) { return gond_call(594, stream, bytes, 0, 0, 0, 0); }
static inline gond_result MachineConsoleRead(uint64_t stream) { return gond_call(595, stream, 0, 0, 0, 0, 0); }
static inline gond_result MachineLog(uint64_t bytes) { return gond_call(596, bytes, 0, 0, 0, 0, 0); }
static inline gond_result MachineStop(uint64_t exit) { return gond_call(597, exit, 0, 0, 0, 0, 0); }
static inline gond_result MachineBootReport(void) { return gond_call(598, 0, 0, 0, 0, 0, 0); }
static inline gond_result MachineStirRandom(uint64_t word0, uint64_t word1) { return gond_call(599, word0, word1, 0, 0, 0, 0); }

#endif
