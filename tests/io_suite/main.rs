//! The contract of the seam, held by every engine: one set of bodies, run on each.
//!
//! Owns: the table of engines and the list of bodies. Never does: anything only one engine can
//! show (`sim_world.rs` for the simulator, `engines.rs` for the kernel).

mod bed;
mod files;
mod flow;
mod sockets;

macro_rules! run_on {
    ($engine:ident, $bed:ident) => {
        run_on! { @each $engine, $bed:
            files::opens_by_every_rule,
            files::names_are_made_moved_and_removed,
            files::lists_and_stats_tell_files_from_directories,
            files::reads_end_at_the_end_of_the_file,
            files::writes_in_flight_land_where_they_say,
            files::an_advanced_group_leaves_only_its_rest,
            files::many_slices_leave_as_one_write,
            files::lengths_change_and_holes_read_as_zeros,
            files::stale_ids_are_refused,
            files::a_closed_file_lives_until_its_ops_end,
            files::random_ops_agree_with_a_model,
            flow::timeouts_end_in_their_order_and_not_before,
            flow::reap_waits_as_told,
            flow::cancelled_ops_end_once,
            flow::cancels_race_with_ops_under_way,
            flow::a_full_queue_gives_the_op_back,
            flow::a_wake_before_the_reap_is_not_lost,
            flow::many_ops_end_once_each_and_their_buffers_come_home,
            sockets::listens_on_a_free_port_and_accepts,
            sockets::echoes_and_hears_the_end,
            sockets::a_full_socket_holds_the_sender_back_and_loses_nothing,
            sockets::receives_what_a_fast_peer_sends,
            sockets::sendfile_sends_ranges_and_stops_at_the_end,
            sockets::shutdown_ends_a_pending_recv,
            sockets::a_closed_socket_lives_until_its_ops_end,
            sockets::a_peer_that_left_is_an_error_to_the_sender,
            sockets::sockets_and_files_are_not_mixed_up,
        }
    };
    (@each $engine:ident, $bed:ident: $($group:ident :: $body:ident,)*) => {
        mod $engine {
            use crate::bed::{$bed, Bed};
            $(
                #[test]
                fn $body() {
                    $bed::make().for_each(crate::$group::$body);
                }
            )*
        }
    };
}

run_on!(sim, Sim);
run_on!(syscall, Syscall);
run_on!(syscall_inline, SyscallInline);
run_on!(uring, Uring);
run_on!(uring_writes, UringWrites);
