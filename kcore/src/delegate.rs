//! Machine by delegation, for worlds that hold a [`crate::Kernel`] beside a disk.

/// Implements [`crate::Machine`] for a type by handing every call to its field.
#[macro_export]
macro_rules! delegate_machine {
    ($(#[$meta:meta])* impl[$($generics:tt)*] $type:ty, $field:ident) => {
        $(#[$meta])*
        impl<$($generics)*> $crate::Machine for $type {
            #[inline]
            fn frame_ready(&mut self) -> Option<$crate::Frame> {
                $crate::Machine::frame_ready(&mut self.$field)
            }
            fn frame_zeroed(&mut self) -> Result<$crate::Frame, $crate::Shortage> {
                $crate::Machine::frame_zeroed(&mut self.$field)
            }
            #[inline]
            fn frame_any(&mut self) -> Result<$crate::Frame, $crate::Shortage> {
                $crate::Machine::frame_any(&mut self.$field)
            }
            #[inline]
            fn frame_share(&mut self, frame: $crate::Frame) {
                $crate::Machine::frame_share(&mut self.$field, frame)
            }
            #[inline]
            fn frame_release(&mut self, frame: $crate::Frame) {
                $crate::Machine::frame_release(&mut self.$field, frame)
            }
            #[inline]
            fn frame_references(&self, frame: $crate::Frame) -> u32 {
                $crate::Machine::frame_references(&self.$field, frame)
            }
            #[inline]
            fn frame_found(&self, number: u32) -> Option<$crate::Frame> {
                $crate::Machine::frame_found(&self.$field, number)
            }
            #[inline]
            fn frame_copy(&mut self, from: $crate::Frame, to: $crate::Frame) {
                $crate::Machine::frame_copy(&mut self.$field, from, to)
            }
            #[inline]
            fn frame_read(&self, frame: $crate::Frame, offset: usize, into: &mut [u8]) {
                $crate::Machine::frame_read(&self.$field, frame, offset, into)
            }
            #[inline]
            fn frame_write(&mut self, frame: $crate::Frame, offset: usize, from: &[u8]) {
                $crate::Machine::frame_write(&mut self.$field, frame, offset, from)
            }
            #[inline]
            fn frames_free(&self) -> u64 {
                $crate::Machine::frames_free(&self.$field)
            }
            #[inline]
            fn kernel_frames(&self) -> u64 {
                $crate::Machine::kernel_frames(&self.$field)
            }
            #[inline]
            fn frames_total(&self) -> u64 {
                $crate::Machine::frames_total(&self.$field)
            }
            #[inline]
            fn leaf_create(&mut self) -> Result<$crate::Leaf, $crate::Shortage> {
                $crate::Machine::leaf_create(&mut self.$field)
            }
            #[inline]
            fn leaf_destroy(&mut self, leaf: $crate::Leaf) {
                $crate::Machine::leaf_destroy(&mut self.$field, leaf)
            }
            #[inline]
            fn leaf_get(&self, leaf: $crate::Leaf, index: usize) -> Option<$crate::PageEntry> {
                $crate::Machine::leaf_get(&self.$field, leaf, index)
            }
            #[inline]
            fn leaf_set(&mut self, leaf: $crate::Leaf, index: usize, entry: Option<$crate::PageEntry>) {
                $crate::Machine::leaf_set(&mut self.$field, leaf, index, entry)
            }
            #[inline]
            fn space_create(&mut self) -> Result<$crate::SpaceId, $crate::Shortage> {
                $crate::Machine::space_create(&mut self.$field)
            }
            #[inline]
            fn space_destroy(&mut self, space: $crate::SpaceId) {
                $crate::Machine::space_destroy(&mut self.$field, space)
            }
            #[inline]
            fn space_trim(&mut self, space: $crate::SpaceId, work: u64) -> Option<u64> {
                $crate::Machine::space_trim(&mut self.$field, space, work)
            }
            #[inline]
            fn link(&mut self, space: $crate::SpaceId, slot: u64, leaf: $crate::Leaf, rights: $crate::abi::Rights) -> Result<(), $crate::Shortage> {
                $crate::Machine::link(&mut self.$field, space, slot, leaf, rights)
            }
            #[inline]
            fn unlink(&mut self, space: $crate::SpaceId, slot: u64) {
                $crate::Machine::unlink(&mut self.$field, space, slot)
            }
            #[inline]
            fn flush_space(&mut self, space: $crate::SpaceId) {
                $crate::Machine::flush_space(&mut self.$field, space)
            }
            #[inline]
            fn flush_page(&mut self, address: u64) {
                $crate::Machine::flush_page(&mut self.$field, address)
            }
            #[inline]
            fn flush_everything(&mut self) {
                $crate::Machine::flush_everything(&mut self.$field)
            }
            #[inline]
            fn space_tables(&self, space: $crate::SpaceId) -> u64 {
                $crate::Machine::space_tables(&self.$field, space)
            }
            #[inline]
            fn thread_create(&mut self, space: $crate::SpaceId, rip: u64, rsp: u64, arguments: [u64; 4], standing: $crate::scheduler::Standing) -> Result<$crate::ThreadId, $crate::Shortage> {
                $crate::Machine::thread_create(&mut self.$field, space, rip, rsp, arguments, standing)
            }
            #[inline]
            fn thread_destroy(&mut self, thread: $crate::ThreadId) {
                $crate::Machine::thread_destroy(&mut self.$field, thread)
            }
            #[inline]
            fn thread_wake(&mut self, thread: $crate::ThreadId, resumed: $crate::thread::Resumed) {
                $crate::Machine::thread_wake(&mut self.$field, thread, resumed)
            }
            #[inline]
            fn thread_suspend(&mut self, thread: $crate::ThreadId) {
                $crate::Machine::thread_suspend(&mut self.$field, thread)
            }
            #[inline]
            fn wake(&mut self, key: $crate::wait::Key, count: u32) -> u32 {
                $crate::Machine::wake(&mut self.$field, key, count)
            }
            #[inline]
            fn wake_words(&mut self, addresses: core::ops::Range<u64>) -> u32 {
                $crate::Machine::wake_words(&mut self.$field, addresses)
            }
            #[inline]
            fn thread_can_be_answered(&self, thread: $crate::ThreadId, key: $crate::wait::Key) -> bool {
                $crate::Machine::thread_can_be_answered(&self.$field, thread, key)
            }
            #[inline]
            fn thread_answer(&mut self, thread: $crate::ThreadId, value: u64, value2: u64) {
                $crate::Machine::thread_answer(&mut self.$field, thread, value, value2)
            }
            #[inline]
            fn thread_is_ready(&self, thread: $crate::ThreadId) -> bool {
                $crate::Machine::thread_is_ready(&self.$field, thread)
            }
            #[inline]
            fn thread_space(&self, thread: $crate::ThreadId) -> $crate::SpaceId {
                $crate::Machine::thread_space(&self.$field, thread)
            }
            #[inline]
            fn thread_context(&self, thread: $crate::ThreadId) -> $crate::thread::Context {
                $crate::Machine::thread_context(&self.$field, thread)
            }
            #[inline]
            fn thread_set_context(&mut self, thread: $crate::ThreadId, context: &$crate::thread::Context) {
                $crate::Machine::thread_set_context(&mut self.$field, thread, context)
            }
            #[inline]
            fn thread_drop_operation(&mut self, thread: $crate::ThreadId) -> bool {
                $crate::Machine::thread_drop_operation(&mut self.$field, thread)
            }
            #[inline]
            fn thread_time_ns(&self, thread: $crate::ThreadId) -> u64 {
                $crate::Machine::thread_time_ns(&self.$field, thread)
            }
            #[inline]
            fn thread_set_priority(&mut self, thread: $crate::ThreadId, priority: u8) {
                $crate::Machine::thread_set_priority(&mut self.$field, thread, priority)
            }
            #[inline]
            fn share_open(&mut self, share: u32, parent: u32, bound: u64) -> Result<(), $crate::Shortage> {
                $crate::Machine::share_open(&mut self.$field, share, parent, bound)
            }
            #[inline]
            fn share_told(&self, share: u32) -> (u64, u64) {
                $crate::Machine::share_told(&self.$field, share)
            }
            #[inline]
            fn portal_enter(&mut self, thread: $crate::ThreadId, callee: $crate::SpaceId, entry: u64, arguments: [u64; 4], stacks: $crate::machine::Stacks) -> Option<()> {
                $crate::Machine::portal_enter(&mut self.$field, thread, callee, entry, arguments, stacks)
            }
            #[inline]
            fn portal_leave(&mut self, thread: $crate::ThreadId, error: u64, value: u64, value2: u64) -> Option<$crate::thread::PortalFrame> {
                $crate::Machine::portal_leave(&mut self.$field, thread, error, value, value2)
            }
            #[inline]
            fn portal_depth(&self, thread: $crate::ThreadId) -> usize {
                $crate::Machine::portal_depth(&self.$field, thread)
            }
            #[inline]
            fn portal_frame(&self, thread: $crate::ThreadId, index: usize) -> Option<$crate::thread::PortalFrame> {
                $crate::Machine::portal_frame(&self.$field, thread, index)
            }
            #[inline]
            fn portal_cache(&mut self, caller: $crate::SpaceId, entry: u64, pd: u64, callee: $crate::SpaceId) {
                $crate::Machine::portal_cache(&mut self.$field, caller, entry, pd, callee)
            }
            #[inline]
            fn portal_forget(&mut self) {
                $crate::Machine::portal_forget(&mut self.$field)
            }
            #[inline]
            fn portal_intercept_return(&mut self, thread: $crate::ThreadId, intercept: $crate::machine::Intercept) {
                $crate::Machine::portal_intercept_return(&mut self.$field, thread, intercept)
            }
            #[inline]
            fn portal_free_stacks(&self, callee: $crate::SpaceId) -> usize {
                $crate::Machine::portal_free_stacks(&self.$field, callee)
            }
            #[inline]
            fn portal_add_stack(&mut self, callee: $crate::SpaceId, top: u64) {
                $crate::Machine::portal_add_stack(&mut self.$field, callee, top)
            }
            #[inline]
            fn now_ns(&self) -> u64 {
                $crate::Machine::now_ns(&self.$field)
            }
            #[inline]
            fn boot_time_ns(&self) -> u64 {
                $crate::Machine::boot_time_ns(&self.$field)
            }
            #[inline]
            fn random(&mut self) -> u64 {
                $crate::Machine::random(&mut self.$field)
            }
            #[inline]
            fn stir_random(&mut self, words: [u64; 2]) {
                $crate::Machine::stir_random(&mut self.$field, words);
            }
            #[inline]
            fn console_write(&mut self, stream: u64, bytes: &[u8]) -> usize {
                $crate::Machine::console_write(&mut self.$field, stream, bytes)
            }
            #[inline]
            fn console_read(&mut self, stream: u64) -> Option<u8> {
                $crate::Machine::console_read(&mut self.$field, stream)
            }
            #[inline]
            fn log(&mut self, line: core::fmt::Arguments<'_>) {
                $crate::Machine::log(&mut self.$field, line)
            }
            #[inline]
            fn heap(&self) -> (u64, u64) {
                $crate::Machine::heap(&self.$field)
            }
            #[inline]
            fn stop(&mut self, exit: u8) {
                $crate::Machine::stop(&mut self.$field, exit)
            }
            #[inline]
            fn boot_report(&self) -> $crate::abi::layout::BootReport {
                $crate::Machine::boot_report(&self.$field)
            }
        }
    };
}
