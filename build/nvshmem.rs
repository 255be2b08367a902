//! What is bound of NVSHMEM: what a host program needs, on streams and on the host. Most of what its headers declare is for
//! kernels, and no library for the host has it; the atomics for the host are there and do nothing.

/// Functions that the oldest version that will do has.
pub const FUNCTIONS: &[&str] = &[
    "nvshmemx_get_uniqueid",
    "nvshmemx_set_attr_uniqueid_args",
    // nvshmem_init, nvshmemx_init_attr and nvshmem_finalize are functions of the headers that need the library for kernels.
    "nvshmemx_hostlib_(init_attr|finalize)",
    "nvshmemx_init_status",
    "nvshmem_query_thread",
    "nvshmem_global_exit",
    "nvshmem_(my_pe|n_pes)",
    "nvshmem_info_get_(version|name)",
    "nvshmemx_vendor_get_version_info",
    "nvshmem_(malloc|calloc|align|free|ptr)",
    "nvshmemx_mc_ptr",
    "nvshmemx_buffer_(register|unregister|unregister_all)",
    "nvshmem_team_(my_pe|n_pes|get_config|translate_pe|split_strided|split_2d|destroy)",
    "nvshmem_(barrier|barrier_all|team_sync|sync_all|fence|quiet)",
    "nvshmemx_(barrier|barrier_all|team_sync|sync_all|quiet)_on_stream",
    "nvshmem_(put|get)mem(_nbi)?",
    "nvshmemx_(put|get)mem(_nbi)?_on_stream",
    // Single elements go by their width, whatever their type.
    "nvshmem_uint(8|16|32|64)_[pg]",
    "nvshmemx_uint(8|16|32|64)_p_on_stream",
    "nvshmem_i(put|get)(8|16|32|64|128)",
    "nvshmemx_i(put|get)(8|16|32|64|128)_on_stream",
    "nvshmemx_u?int(32|64)_wait_until(_all|_all_vector)?_on_stream",
    "nvshmem_signal_fetch",
    "nvshmemx_putmem_signal(_nbi)?_on_stream",
    "nvshmemx_signal_(op|wait_until)_on_stream",
    "nvshmemx_cu(module|library)_(init|finalize)",
    "nvshmem_(alltoall|broadcast|fcollect)mem",
    "nvshmemx_(alltoall|broadcast|fcollect)mem_on_stream",
    "nvshmemx_(u?int(8|16|32|64)|half|bfloat16|float|double)_(sum|prod|min|max)_reduce(scatter)?_on_stream",
    "nvshmemx_u?int(8|16|32|64)_(and|or|xor)_reduce(scatter)?_on_stream",
    "gpucommNvshmem(UniqueId|Attr|TeamConfig)Init",
    "gpucommNvshmemHasNccl",
    "gpucommNvshmemCollectiveLaunch(Config|Grid)?",
];

/// Functions that came later, bound where the headers have them: vendor/shim calls them, if the library has them.
pub const NEWER: &[&str] = &[
    "nvshmemx_team_get_uniqueid",
    "nvshmemx_team_init",
    "nvshmemx_buffer_register_symmetric",
    "nvshmemx_buffer_unregister_symmetric",
    "nvshmemx_flush",
    "nvshmemx_flush_on_stream",
    "nvshmemx_region_start",
    "nvshmemx_region_stop",
    "nvshmemx_qp_create",
];

/// Constants that are macros.
pub const CONSTANTS: &[&str] =
    &["NVSHMEM_VENDOR_(MAJOR|MINOR|PATCH)_VERSION", "NVSHMEM_(MAJOR|MINOR)_VERSION", "NVSHMEM_MAX_NAME_LEN"];

/// Constants of enumerations, which vendor/shim/gpucomm_nvshmem.h names with this prefix; the bindings drop it.
pub const PREFIX: &str = "gpucomm_NVSHMEM";
