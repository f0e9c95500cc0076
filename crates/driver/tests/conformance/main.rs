//! The driver against the virtual SSD: one list of behaviours for every transport, with what a transport
//! cannot do beside the behaviour.

mod admin;
mod bring_up;
mod faults;
mod kv;
mod list;
mod model;
mod network;
mod placement;
mod queues;
mod rig;
mod rules;
mod saboteur;
mod served;
mod transfer;
mod waiting;

use list::{Guest::Check, Guest::No, Why::*};

list::conformance! {
    bring_up [file: OnlyBlocks, network: Runs] {
        vfio: Check("drive-check.sh", "taken over");
        passthrough: No(KernelsOwn);
        a_controller_comes_up_and_says_who_it_is,
        a_function_of_another_class_is_refused [network: NoFunction],
        a_controller_that_is_dropped_can_be_opened_again,
        the_last_handle_announces_a_shutdown [network: NoFunction],
        options_out_of_range_are_refused,
        a_reset_controller_says_who_it_is,
        a_subsystem_reset_brings_the_controller_back,
    }
    admin [file: OnlyBlocks, network: Runs] {
        vfio: Check("drive-check.sh", "logs and features");
        passthrough: Check("kernel-check.sh", "identify and logs are those of nvme-cli");
        namespaces_are_listed_described_and_identified,
        a_long_log_is_read_in_pieces_that_fit_together,
        features_are_read_and_written,
        an_unknown_command_returns_its_status_whole,
        a_namespace_is_created_attached_and_deleted,
        a_format_changes_the_block_size,
        firmware_is_downloaded_in_pieces_and_activated_by_a_reset,
        an_event_arrives_once_and_is_armed_again,
    }
    transfer [file: Runs, network: Runs] {
        vfio: Check("drive-check.sh", "commands, blocks of 512");
        passthrough: Check("kernel-check.sh", "what one side writes the other one reads");
        random_commands_leave_what_a_model_has,
        every_length_up_to_the_limit_comes_back_as_it_was_written,
        sgl_and_prp_queues_see_the_same_data [file: BlockLayer] [network: NoFunction],
        a_transfer_beyond_its_buffer_or_the_limit_is_refused_with_the_buffer,
        a_buffer_of_another_controller_is_refused_and_comes_back,
        commands_beyond_the_namespace_are_refused_before_they_are_sent,
        an_error_status_reaches_the_caller_whole [file: BlockLayer],
        a_fused_compare_and_write_writes_only_after_an_equal_compare [file: BlockLayer],
    }
    kv [file: OnlyBlocks, network: Runs] {
        vfio: No(NotInQemu);
        passthrough: Check("kernel-check.sh", "pairs are passed through the kernel");
        a_key_value_namespace_says_what_it_takes,
        a_device_without_the_vendor_commands_is_told_by_its_log,
        a_block_namespace_has_no_pairs_and_the_other_way_round,
        pairs_are_stored_retrieved_and_deleted,
        both_dialects_see_the_same_pairs_and_keyspaces_their_own,
        a_value_is_retrieved_from_an_offset_and_appended_to,
        values_of_every_length_come_back_by_prps_and_sgls [network: NoFunction],
        several_long_transfers_have_lists_of_their_own [network: NoFunction],
        long_keys_of_many_commands_do_not_mix,
        what_a_queue_cannot_take_comes_back_with_its_buffer,
        list_and_iterators_return_the_keys,
        a_device_is_asked_where_it_wants_the_keyspace,
        a_batch_does_its_commands_one_after_another,
        random_pairs_leave_what_a_model_has,
        long_keys_work_after_a_reset,
    }
    placement [file: OnlyBlocks, network: Runs] {
        vfio: No(NotInQemu);
        passthrough: Check("kernel-check.sh", "FDP: our numbers are those of nvme-cli");
        a_placed_write_carries_its_directive_and_a_plain_one_none,
        placement_commands_that_make_no_sense_are_refused_before_they_are_sent,
        a_device_without_flash_answers_with_statuses,
        placed_writes_fill_the_reclaim_unit_of_their_handle,
        an_update_goes_on_with_an_empty_unit_and_is_recorded,
        a_write_to_a_placement_there_is_not_succeeds_and_is_recorded,
        fdp_is_enabled_without_namespaces_and_they_are_created_with_handles,
        a_placement_identifier_names_a_reclaim_group_and_a_handle,
    }
    queues [file: Runs, network: Runs] {
        vfio: Check("drive-check.sh", "matrix");
        passthrough: Check("kernel-check.sh", "verified I/O by every way");
        a_queue_survives_many_laps,
        a_full_queue_gives_the_buffer_back_and_goes_on,
        the_smallest_and_the_largest_queue_work,
        many_queues_serve_many_threads,
        queue_identifiers_are_used_again,
        queues_are_of_classes_or_an_error_says_why_not,
        queues_and_vectors_run_out_with_an_error_that_says_so [file: NoFunction] [network: NoFunction],
        the_device_refuses_to_delete_a_completion_queue_in_use [file: NoFunction] [network: NoFunction],
        dropping_a_queue_with_commands_outstanding_ends_them,
    }
    waiting [file: Runs, network: Runs] {
        vfio: Check("drive-check.sh", "interrupts");
        passthrough: Check("kernel-check.sh", "verified I/O by every way");
        a_polling_queue_waits_for_its_completion,
        an_interrupt_wakes_the_sleeper,
        a_hybrid_queue_loses_no_completion,
        waiting_for_nothing_returns_at_once,
        only_queues_that_sleep_have_interrupts [file: NoFunction] [network: NoFunction],
        a_wait_ends_when_its_time_is_over [file: NoSaboteur] [network: NoSaboteur],
    }
    rules [file: OnlyBlocks, network: Runs] {
        vfio: No(NotInQemu);
        passthrough: No(NotInQemu);
        the_third_write_to_a_range_fails_with_the_status_of_the_rule,
        the_ranges_of_dataset_management_are_matched,
        rules_match_by_queue_opcode_number_and_every_nth,
        a_status_may_be_a_lie_in_both_directions,
        an_admin_command_fails_by_its_name,
        a_dropped_command_is_aborted_and_its_buffer_comes_back,
        a_dropped_command_may_have_been_executed,
        a_dropped_admin_command_times_out_and_the_controller_is_reset,
        a_delayed_command_takes_as_long_as_the_rule_says,
        a_delay_beyond_the_time_out_is_aborted,
        corrupt_data_is_seen,
        a_wrong_completion_resets_the_controller [network: EndsConnection],
        a_completion_for_another_queue_does_no_harm,
        fatal_status_ends_commands_and_a_reset_helps [network: NoFunction],
        read_only_media_warns_and_refuses_writes,
        an_event_is_reported,
        an_unplugged_device_is_a_clear_error_and_no_hang [network: EndsConnection],
        the_power_is_cut_at_the_program_the_rule_names [network: EndsConnection],
        keys_are_matched_whole_and_by_their_beginning,
        wrong_rules_are_refused_in_words,
        a_device_without_the_fault_commands_knows_none,
        the_same_seed_gives_the_same_faults,
    }
    faults [file: NoSaboteur, network: NoSaboteur] {
        vfio: Check("drive-check.sh", "function level reset under load");
        passthrough: Check("kernel-check.sh", "a reset by the kernel");
        a_reset_returns_every_outstanding_command_and_the_queue_goes_on,
        a_command_without_answer_is_aborted_and_then_the_controller_is_reset,
        a_command_that_answers_after_the_abort_needs_no_reset,
        waits_of_no_time_at_all_still_notice_a_command_that_takes_too_long,
        a_dead_admin_queue_ends_everything_with_errors,
        a_controller_that_never_stops_keeps_the_buffers,
        an_abort_without_answer_ends_with_the_grace_period,
        a_foreign_completion_resets_the_controller,
        a_completion_that_comes_twice_resets_the_controller,
        a_controller_that_never_gets_ready_is_a_timeout,
        a_bring_up_that_fails_halfway_leaves_the_controller_disabled,
        a_controller_that_cannot_weigh_queues_comes_up_without,
    }
}
