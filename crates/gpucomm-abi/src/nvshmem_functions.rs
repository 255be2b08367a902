// Generated from vendor/shim/gpucomm_nvshmem.h over vendor/include by build/bind.rs. Do not edit: see CONTRIBUTING.md.

unsafe extern "C" {
    pub fn nvshmemx_get_uniqueid(
        uniqueid: *mut nvshmemx_uniqueid_t,
    ) -> ::std::os::raw::c_int;
    pub fn nvshmemx_set_attr_uniqueid_args(
        myrank: ::std::os::raw::c_int,
        nranks: ::std::os::raw::c_int,
        uniqueid: *const nvshmemx_uniqueid_t,
        attr: *mut nvshmemx_init_attr_t,
    ) -> ::std::os::raw::c_int;
    pub fn nvshmemx_hostlib_init_attr(
        flags: ::std::os::raw::c_uint,
        attr: *mut nvshmemx_init_attr_t,
    ) -> ::std::os::raw::c_int;
    pub fn nvshmemx_init_status() -> ::std::os::raw::c_int;
    pub fn nvshmemx_hostlib_finalize();
    pub fn nvshmem_query_thread(provided: *mut ::std::os::raw::c_int);
    pub fn nvshmem_global_exit(status: ::std::os::raw::c_int);
    pub fn nvshmem_my_pe() -> ::std::os::raw::c_int;
    pub fn nvshmem_n_pes() -> ::std::os::raw::c_int;
    pub fn nvshmem_info_get_version(
        major: *mut ::std::os::raw::c_int,
        minor: *mut ::std::os::raw::c_int,
    );
    pub fn nvshmem_info_get_name(name: *mut ::std::os::raw::c_char);
    pub fn nvshmemx_vendor_get_version_info(
        major: *mut ::std::os::raw::c_int,
        minor: *mut ::std::os::raw::c_int,
        patch: *mut ::std::os::raw::c_int,
    );
    pub fn nvshmem_malloc(size: usize) -> *mut ::std::os::raw::c_void;
    pub fn nvshmem_calloc(count: usize, size: usize) -> *mut ::std::os::raw::c_void;
    pub fn nvshmem_align(alignment: usize, size: usize) -> *mut ::std::os::raw::c_void;
    pub fn nvshmem_free(ptr: *mut ::std::os::raw::c_void);
    pub fn nvshmem_ptr(
        ptr: *const ::std::os::raw::c_void,
        pe: ::std::os::raw::c_int,
    ) -> *mut ::std::os::raw::c_void;
    pub fn nvshmemx_mc_ptr(
        team: nvshmem_team_t,
        ptr: *const ::std::os::raw::c_void,
    ) -> *mut ::std::os::raw::c_void;
    pub fn nvshmemx_buffer_register(
        addr: *mut ::std::os::raw::c_void,
        length: usize,
    ) -> ::std::os::raw::c_int;
    pub fn nvshmemx_buffer_unregister(
        addr: *mut ::std::os::raw::c_void,
    ) -> ::std::os::raw::c_int;
    pub fn nvshmemx_buffer_unregister_all();
    #[link_name = "\u{1}gpucomm_nvshmemx_buffer_register_symmetric"]
    pub fn nvshmemx_buffer_register_symmetric(
        buf_ptr: *mut ::std::os::raw::c_void,
        size: usize,
        flags: ::std::os::raw::c_int,
    ) -> *mut ::std::os::raw::c_void;
    #[link_name = "\u{1}gpucomm_nvshmemx_buffer_unregister_symmetric"]
    pub fn nvshmemx_buffer_unregister_symmetric(
        mmap_ptr: *mut ::std::os::raw::c_void,
        size: usize,
    ) -> ::std::os::raw::c_int;
    pub fn nvshmem_team_my_pe(team: nvshmem_team_t) -> ::std::os::raw::c_int;
    pub fn nvshmem_team_n_pes(team: nvshmem_team_t) -> ::std::os::raw::c_int;
    pub fn nvshmem_team_get_config(
        team: nvshmem_team_t,
        config: *mut nvshmem_team_config_t,
    );
    pub fn nvshmem_team_translate_pe(
        src_team: nvshmem_team_t,
        src_pe: ::std::os::raw::c_int,
        dest_team: nvshmem_team_t,
    ) -> ::std::os::raw::c_int;
    pub fn nvshmem_team_split_strided(
        parent: nvshmem_team_t,
        start: ::std::os::raw::c_int,
        stride: ::std::os::raw::c_int,
        size: ::std::os::raw::c_int,
        config: *const nvshmem_team_config_t,
        mask: ::std::os::raw::c_long,
        team: *mut nvshmem_team_t,
    ) -> ::std::os::raw::c_int;
    pub fn nvshmem_team_split_2d(
        parent: nvshmem_team_t,
        xrange: ::std::os::raw::c_int,
        xconfig: *const nvshmem_team_config_t,
        xmask: ::std::os::raw::c_long,
        xteam: *mut nvshmem_team_t,
        yconfig: *const nvshmem_team_config_t,
        ymask: ::std::os::raw::c_long,
        yteam: *mut nvshmem_team_t,
    ) -> ::std::os::raw::c_int;
    pub fn nvshmem_team_destroy(team: nvshmem_team_t);
    #[link_name = "\u{1}gpucomm_nvshmemx_team_get_uniqueid"]
    pub fn nvshmemx_team_get_uniqueid(
        uniqueid: *mut nvshmemx_team_uniqueid_t,
    ) -> ::std::os::raw::c_int;
    #[link_name = "\u{1}gpucomm_nvshmemx_team_init"]
    pub fn nvshmemx_team_init(
        team: *mut nvshmem_team_t,
        config: *mut nvshmem_team_config_t,
        mask: ::std::os::raw::c_long,
        npes: ::std::os::raw::c_int,
        index: ::std::os::raw::c_int,
    ) -> ::std::os::raw::c_int;
    pub fn nvshmem_barrier(team: nvshmem_team_t) -> ::std::os::raw::c_int;
    pub fn nvshmem_barrier_all();
    pub fn nvshmem_team_sync(team: nvshmem_team_t) -> ::std::os::raw::c_int;
    pub fn nvshmem_sync_all();
    pub fn nvshmem_fence();
    pub fn nvshmem_quiet();
    #[link_name = "\u{1}gpucomm_nvshmemx_flush"]
    pub fn nvshmemx_flush();
    pub fn nvshmemx_barrier_on_stream(
        team: nvshmem_team_t,
        stream: cudaStream_t,
    ) -> ::std::os::raw::c_int;
    pub fn nvshmemx_barrier_all_on_stream(stream: cudaStream_t);
    pub fn nvshmemx_team_sync_on_stream(
        team: nvshmem_team_t,
        stream: cudaStream_t,
    ) -> ::std::os::raw::c_int;
    pub fn nvshmemx_sync_all_on_stream(stream: cudaStream_t);
    pub fn nvshmemx_quiet_on_stream(stream: cudaStream_t);
    #[link_name = "\u{1}gpucomm_nvshmemx_flush_on_stream"]
    pub fn nvshmemx_flush_on_stream(stream: cudaStream_t);
    pub fn nvshmem_putmem(
        dest: *mut ::std::os::raw::c_void,
        source: *const ::std::os::raw::c_void,
        bytes: usize,
        pe: ::std::os::raw::c_int,
    );
    pub fn nvshmem_putmem_nbi(
        dest: *mut ::std::os::raw::c_void,
        source: *const ::std::os::raw::c_void,
        bytes: usize,
        pe: ::std::os::raw::c_int,
    );
    pub fn nvshmem_getmem(
        dest: *mut ::std::os::raw::c_void,
        source: *const ::std::os::raw::c_void,
        bytes: usize,
        pe: ::std::os::raw::c_int,
    );
    pub fn nvshmem_getmem_nbi(
        dest: *mut ::std::os::raw::c_void,
        source: *const ::std::os::raw::c_void,
        bytes: usize,
        pe: ::std::os::raw::c_int,
    );
    pub fn nvshmemx_putmem_on_stream(
        dest: *mut ::std::os::raw::c_void,
        source: *const ::std::os::raw::c_void,
        bytes: usize,
        pe: ::std::os::raw::c_int,
        stream: cudaStream_t,
    );
    pub fn nvshmemx_putmem_nbi_on_stream(
        dest: *mut ::std::os::raw::c_void,
        source: *const ::std::os::raw::c_void,
        bytes: usize,
        pe: ::std::os::raw::c_int,
        stream: cudaStream_t,
    );
    pub fn nvshmemx_getmem_on_stream(
        dest: *mut ::std::os::raw::c_void,
        source: *const ::std::os::raw::c_void,
        bytes: usize,
        pe: ::std::os::raw::c_int,
        stream: cudaStream_t,
    );
    pub fn nvshmemx_getmem_nbi_on_stream(
        dest: *mut ::std::os::raw::c_void,
        source: *const ::std::os::raw::c_void,
        bytes: usize,
        pe: ::std::os::raw::c_int,
        stream: cudaStream_t,
    );
    pub fn nvshmem_uint8_p(dest: *mut u8, value: u8, pe: ::std::os::raw::c_int);
    pub fn nvshmem_uint8_g(src: *const u8, pe: ::std::os::raw::c_int) -> u8;
    pub fn nvshmemx_uint8_p_on_stream(
        dest: *mut u8,
        value: u8,
        pe: ::std::os::raw::c_int,
        stream: cudaStream_t,
    );
    pub fn nvshmem_uint16_p(dest: *mut u16, value: u16, pe: ::std::os::raw::c_int);
    pub fn nvshmem_uint16_g(src: *const u16, pe: ::std::os::raw::c_int) -> u16;
    pub fn nvshmemx_uint16_p_on_stream(
        dest: *mut u16,
        value: u16,
        pe: ::std::os::raw::c_int,
        stream: cudaStream_t,
    );
    pub fn nvshmem_uint32_p(dest: *mut u32, value: u32, pe: ::std::os::raw::c_int);
    pub fn nvshmem_uint32_g(src: *const u32, pe: ::std::os::raw::c_int) -> u32;
    pub fn nvshmemx_uint32_p_on_stream(
        dest: *mut u32,
        value: u32,
        pe: ::std::os::raw::c_int,
        stream: cudaStream_t,
    );
    pub fn nvshmem_uint64_p(dest: *mut u64, value: u64, pe: ::std::os::raw::c_int);
    pub fn nvshmem_uint64_g(src: *const u64, pe: ::std::os::raw::c_int) -> u64;
    pub fn nvshmemx_uint64_p_on_stream(
        dest: *mut u64,
        value: u64,
        pe: ::std::os::raw::c_int,
        stream: cudaStream_t,
    );
    pub fn nvshmem_iput8(
        dest: *mut ::std::os::raw::c_void,
        source: *const ::std::os::raw::c_void,
        dst: isize,
        sst: isize,
        nelems: usize,
        pe: ::std::os::raw::c_int,
    );
    pub fn nvshmem_iget8(
        dest: *mut ::std::os::raw::c_void,
        source: *const ::std::os::raw::c_void,
        dst: isize,
        sst: isize,
        nelems: usize,
        pe: ::std::os::raw::c_int,
    );
    pub fn nvshmemx_iput8_on_stream(
        dest: *mut ::std::os::raw::c_void,
        source: *const ::std::os::raw::c_void,
        dst: isize,
        sst: isize,
        nelems: usize,
        pe: ::std::os::raw::c_int,
        stream: cudaStream_t,
    );
    pub fn nvshmemx_iget8_on_stream(
        dest: *mut ::std::os::raw::c_void,
        source: *const ::std::os::raw::c_void,
        dst: isize,
        sst: isize,
        nelems: usize,
        pe: ::std::os::raw::c_int,
        stream: cudaStream_t,
    );
    pub fn nvshmem_iput16(
        dest: *mut ::std::os::raw::c_void,
        source: *const ::std::os::raw::c_void,
        dst: isize,
        sst: isize,
        nelems: usize,
        pe: ::std::os::raw::c_int,
    );
    pub fn nvshmem_iget16(
        dest: *mut ::std::os::raw::c_void,
        source: *const ::std::os::raw::c_void,
        dst: isize,
        sst: isize,
        nelems: usize,
        pe: ::std::os::raw::c_int,
    );
    pub fn nvshmemx_iput16_on_stream(
        dest: *mut ::std::os::raw::c_void,
        source: *const ::std::os::raw::c_void,
        dst: isize,
        sst: isize,
        nelems: usize,
        pe: ::std::os::raw::c_int,
        stream: cudaStream_t,
    );
    pub fn nvshmemx_iget16_on_stream(
        dest: *mut ::std::os::raw::c_void,
        source: *const ::std::os::raw::c_void,
        dst: isize,
        sst: isize,
        nelems: usize,
        pe: ::std::os::raw::c_int,
        stream: cudaStream_t,
    );
    pub fn nvshmem_iput32(
        dest: *mut ::std::os::raw::c_void,
        source: *const ::std::os::raw::c_void,
        dst: isize,
        sst: isize,
        nelems: usize,
        pe: ::std::os::raw::c_int,
    );
    pub fn nvshmem_iget32(
        dest: *mut ::std::os::raw::c_void,
        source: *const ::std::os::raw::c_void,
        dst: isize,
        sst: isize,
        nelems: usize,
        pe: ::std::os::raw::c_int,
    );
    pub fn nvshmemx_iput32_on_stream(
        dest: *mut ::std::os::raw::c_void,
        source: *const ::std::os::raw::c_void,
        dst: isize,
        sst: isize,
        nelems: usize,
        pe: ::std::os::raw::c_int,
        stream: cudaStream_t,
    );
    pub fn nvshmemx_iget32_on_stream(
        dest: *mut ::std::os::raw::c_void,
        source: *const ::std::os::raw::c_void,
        dst: isize,
        sst: isize,
        nelems: usize,
        pe: ::std::os::raw::c_int,
        stream: cudaStream_t,
    );
    pub fn nvshmem_iput64(
        dest: *mut ::std::os::raw::c_void,
        source: *const ::std::os::raw::c_void,
        dst: isize,
        sst: isize,
        nelems: usize,
        pe: ::std::os::raw::c_int,
    );
    pub fn nvshmem_iget64(
        dest: *mut ::std::os::raw::c_void,
        source: *const ::std::os::raw::c_void,
        dst: isize,
        sst: isize,
        nelems: usize,
        pe: ::std::os::raw::c_int,
    );
    pub fn nvshmemx_iput64_on_stream(
        dest: *mut ::std::os::raw::c_void,
        source: *const ::std::os::raw::c_void,
        dst: isize,
        sst: isize,
        nelems: usize,
        pe: ::std::os::raw::c_int,
        stream: cudaStream_t,
    );
    pub fn nvshmemx_iget64_on_stream(
        dest: *mut ::std::os::raw::c_void,
        source: *const ::std::os::raw::c_void,
        dst: isize,
        sst: isize,
        nelems: usize,
        pe: ::std::os::raw::c_int,
        stream: cudaStream_t,
    );
    pub fn nvshmem_iput128(
        dest: *mut ::std::os::raw::c_void,
        source: *const ::std::os::raw::c_void,
        dst: isize,
        sst: isize,
        nelems: usize,
        pe: ::std::os::raw::c_int,
    );
    pub fn nvshmem_iget128(
        dest: *mut ::std::os::raw::c_void,
        source: *const ::std::os::raw::c_void,
        dst: isize,
        sst: isize,
        nelems: usize,
        pe: ::std::os::raw::c_int,
    );
    pub fn nvshmemx_iput128_on_stream(
        dest: *mut ::std::os::raw::c_void,
        source: *const ::std::os::raw::c_void,
        dst: isize,
        sst: isize,
        nelems: usize,
        pe: ::std::os::raw::c_int,
        stream: cudaStream_t,
    );
    pub fn nvshmemx_iget128_on_stream(
        dest: *mut ::std::os::raw::c_void,
        source: *const ::std::os::raw::c_void,
        dst: isize,
        sst: isize,
        nelems: usize,
        pe: ::std::os::raw::c_int,
        stream: cudaStream_t,
    );
    pub fn nvshmemx_int32_wait_until_on_stream(
        ivar: *mut i32,
        cmp: ::std::os::raw::c_int,
        cmp_value: i32,
        stream: cudaStream_t,
    );
    pub fn nvshmemx_int32_wait_until_all_on_stream(
        ivars: *mut i32,
        nelems: usize,
        status: *const ::std::os::raw::c_int,
        cmp: ::std::os::raw::c_int,
        cmp_value: i32,
        stream: cudaStream_t,
    );
    pub fn nvshmemx_int32_wait_until_all_vector_on_stream(
        ivars: *mut i32,
        nelems: usize,
        status: *const ::std::os::raw::c_int,
        cmp: ::std::os::raw::c_int,
        cmp_value: *mut i32,
        stream: cudaStream_t,
    );
    pub fn nvshmemx_int64_wait_until_on_stream(
        ivar: *mut i64,
        cmp: ::std::os::raw::c_int,
        cmp_value: i64,
        stream: cudaStream_t,
    );
    pub fn nvshmemx_int64_wait_until_all_on_stream(
        ivars: *mut i64,
        nelems: usize,
        status: *const ::std::os::raw::c_int,
        cmp: ::std::os::raw::c_int,
        cmp_value: i64,
        stream: cudaStream_t,
    );
    pub fn nvshmemx_int64_wait_until_all_vector_on_stream(
        ivars: *mut i64,
        nelems: usize,
        status: *const ::std::os::raw::c_int,
        cmp: ::std::os::raw::c_int,
        cmp_value: *mut i64,
        stream: cudaStream_t,
    );
    pub fn nvshmemx_uint32_wait_until_on_stream(
        ivar: *mut u32,
        cmp: ::std::os::raw::c_int,
        cmp_value: u32,
        stream: cudaStream_t,
    );
    pub fn nvshmemx_uint32_wait_until_all_on_stream(
        ivars: *mut u32,
        nelems: usize,
        status: *const ::std::os::raw::c_int,
        cmp: ::std::os::raw::c_int,
        cmp_value: u32,
        stream: cudaStream_t,
    );
    pub fn nvshmemx_uint32_wait_until_all_vector_on_stream(
        ivars: *mut u32,
        nelems: usize,
        status: *const ::std::os::raw::c_int,
        cmp: ::std::os::raw::c_int,
        cmp_value: *mut u32,
        stream: cudaStream_t,
    );
    pub fn nvshmemx_uint64_wait_until_on_stream(
        ivar: *mut u64,
        cmp: ::std::os::raw::c_int,
        cmp_value: u64,
        stream: cudaStream_t,
    );
    pub fn nvshmemx_uint64_wait_until_all_on_stream(
        ivars: *mut u64,
        nelems: usize,
        status: *const ::std::os::raw::c_int,
        cmp: ::std::os::raw::c_int,
        cmp_value: u64,
        stream: cudaStream_t,
    );
    pub fn nvshmemx_uint64_wait_until_all_vector_on_stream(
        ivars: *mut u64,
        nelems: usize,
        status: *const ::std::os::raw::c_int,
        cmp: ::std::os::raw::c_int,
        cmp_value: *mut u64,
        stream: cudaStream_t,
    );
    pub fn nvshmem_signal_fetch(sig_addr: *mut u64) -> u64;
    pub fn nvshmemx_putmem_signal_on_stream(
        dest: *mut ::std::os::raw::c_void,
        source: *const ::std::os::raw::c_void,
        bytes: usize,
        sig_addr: *mut u64,
        signal: u64,
        sig_op: ::std::os::raw::c_int,
        pe: ::std::os::raw::c_int,
        stream: cudaStream_t,
    );
    pub fn nvshmemx_putmem_signal_nbi_on_stream(
        dest: *mut ::std::os::raw::c_void,
        source: *const ::std::os::raw::c_void,
        bytes: usize,
        sig_addr: *mut u64,
        signal: u64,
        sig_op: ::std::os::raw::c_int,
        pe: ::std::os::raw::c_int,
        stream: cudaStream_t,
    );
    pub fn nvshmemx_signal_op_on_stream(
        sig_addr: *mut u64,
        signal: u64,
        sig_op: ::std::os::raw::c_int,
        pe: ::std::os::raw::c_int,
        stream: cudaStream_t,
    );
    pub fn nvshmemx_signal_wait_until_on_stream(
        sig_addr: *mut u64,
        cmp: ::std::os::raw::c_int,
        cmp_value: u64,
        stream: cudaStream_t,
    );
    #[link_name = "\u{1}gpucomm_nvshmemx_region_start"]
    pub fn nvshmemx_region_start(
        handle: *mut nvshmemx_region_handle_t,
        attrs: *const nvshmemx_region_attrs_t,
    ) -> ::std::os::raw::c_int;
    #[link_name = "\u{1}gpucomm_nvshmemx_region_stop"]
    pub fn nvshmemx_region_stop(
        handle: nvshmemx_region_handle_t,
    ) -> ::std::os::raw::c_int;
    #[link_name = "\u{1}gpucomm_nvshmemx_qp_create"]
    pub fn nvshmemx_qp_create(
        num_qps: ::std::os::raw::c_int,
        out_qp_array: *mut *mut nvshmemx_qp_handle_t,
    ) -> ::std::os::raw::c_int;
    pub fn nvshmemx_cumodule_init(module: CUmodule) -> ::std::os::raw::c_int;
    pub fn nvshmemx_cumodule_finalize(module: CUmodule) -> ::std::os::raw::c_int;
    pub fn nvshmemx_culibrary_init(library: CUlibrary) -> ::std::os::raw::c_int;
    pub fn nvshmemx_culibrary_finalize(library: CUlibrary) -> ::std::os::raw::c_int;
    pub fn nvshmem_alltoallmem(
        team: nvshmem_team_t,
        dest: *mut ::std::os::raw::c_void,
        src: *const ::std::os::raw::c_void,
        nelems: usize,
    ) -> ::std::os::raw::c_int;
    pub fn nvshmem_broadcastmem(
        team: nvshmem_team_t,
        dest: *mut ::std::os::raw::c_void,
        src: *const ::std::os::raw::c_void,
        nelems: usize,
        root: ::std::os::raw::c_int,
    ) -> ::std::os::raw::c_int;
    pub fn nvshmem_fcollectmem(
        team: nvshmem_team_t,
        dest: *mut ::std::os::raw::c_void,
        src: *const ::std::os::raw::c_void,
        nelems: usize,
    ) -> ::std::os::raw::c_int;
    pub fn nvshmemx_alltoallmem_on_stream(
        team: nvshmem_team_t,
        dest: *mut ::std::os::raw::c_void,
        src: *const ::std::os::raw::c_void,
        nelem: usize,
        stream: cudaStream_t,
    ) -> ::std::os::raw::c_int;
    pub fn nvshmemx_broadcastmem_on_stream(
        team: nvshmem_team_t,
        dest: *mut ::std::os::raw::c_void,
        src: *const ::std::os::raw::c_void,
        nelem: usize,
        root: ::std::os::raw::c_int,
        stream: cudaStream_t,
    ) -> ::std::os::raw::c_int;
    pub fn nvshmemx_fcollectmem_on_stream(
        team: nvshmem_team_t,
        dest: *mut ::std::os::raw::c_void,
        src: *const ::std::os::raw::c_void,
        nelem: usize,
        stream: cudaStream_t,
    ) -> ::std::os::raw::c_int;
    pub fn nvshmemx_int8_sum_reduce_on_stream(
        team: nvshmem_team_t,
        dest: *mut i8,
        src: *const i8,
        nreduce: usize,
        stream: cudaStream_t,
    ) -> ::std::os::raw::c_int;
    pub fn nvshmemx_int8_sum_reducescatter_on_stream(
        team: nvshmem_team_t,
        dest: *mut i8,
        src: *const i8,
        nreduce: usize,
        stream: cudaStream_t,
    ) -> ::std::os::raw::c_int;
    pub fn nvshmemx_int8_prod_reduce_on_stream(
        team: nvshmem_team_t,
        dest: *mut i8,
        src: *const i8,
        nreduce: usize,
        stream: cudaStream_t,
    ) -> ::std::os::raw::c_int;
    pub fn nvshmemx_int8_prod_reducescatter_on_stream(
        team: nvshmem_team_t,
        dest: *mut i8,
        src: *const i8,
        nreduce: usize,
        stream: cudaStream_t,
    ) -> ::std::os::raw::c_int;
    pub fn nvshmemx_int8_min_reduce_on_stream(
        team: nvshmem_team_t,
        dest: *mut i8,
        src: *const i8,
        nreduce: usize,
        stream: cudaStream_t,
    ) -> ::std::os::raw::c_int;
    pub fn nvshmemx_int8_min_reducescatter_on_stream(
        team: nvshmem_team_t,
        dest: *mut i8,
        src: *const i8,
        nreduce: usize,
        stream: cudaStream_t,
    ) -> ::std::os::raw::c_int;
    pub fn nvshmemx_int8_max_reduce_on_stream(
        team: nvshmem_team_t,
        dest: *mut i8,
        src: *const i8,
        nreduce: usize,
        stream: cudaStream_t,
    ) -> ::std::os::raw::c_int;
    pub fn nvshmemx_int8_max_reducescatter_on_stream(
        team: nvshmem_team_t,
        dest: *mut i8,
        src: *const i8,
        nreduce: usize,
        stream: cudaStream_t,
    ) -> ::std::os::raw::c_int;
    pub fn nvshmemx_int8_and_reduce_on_stream(
        team: nvshmem_team_t,
        dest: *mut i8,
        src: *const i8,
        nreduce: usize,
        stream: cudaStream_t,
    ) -> ::std::os::raw::c_int;
    pub fn nvshmemx_int8_and_reducescatter_on_stream(
        team: nvshmem_team_t,
        dest: *mut i8,
        src: *const i8,
        nreduce: usize,
        stream: cudaStream_t,
    ) -> ::std::os::raw::c_int;
    pub fn nvshmemx_int8_or_reduce_on_stream(
        team: nvshmem_team_t,
        dest: *mut i8,
        src: *const i8,
        nreduce: usize,
        stream: cudaStream_t,
    ) -> ::std::os::raw::c_int;
    pub fn nvshmemx_int8_or_reducescatter_on_stream(
        team: nvshmem_team_t,
        dest: *mut i8,
        src: *const i8,
        nreduce: usize,
        stream: cudaStream_t,
    ) -> ::std::os::raw::c_int;
    pub fn nvshmemx_int8_xor_reduce_on_stream(
        team: nvshmem_team_t,
        dest: *mut i8,
        src: *const i8,
        nreduce: usize,
        stream: cudaStream_t,
    ) -> ::std::os::raw::c_int;
    pub fn nvshmemx_int8_xor_reducescatter_on_stream(
        team: nvshmem_team_t,
        dest: *mut i8,
        src: *const i8,
        nreduce: usize,
        stream: cudaStream_t,
    ) -> ::std::os::raw::c_int;
    pub fn nvshmemx_int16_sum_reduce_on_stream(
        team: nvshmem_team_t,
        dest: *mut i16,
        src: *const i16,
        nreduce: usize,
        stream: cudaStream_t,
    ) -> ::std::os::raw::c_int;
    pub fn nvshmemx_int16_sum_reducescatter_on_stream(
        team: nvshmem_team_t,
        dest: *mut i16,
        src: *const i16,
        nreduce: usize,
        stream: cudaStream_t,
    ) -> ::std::os::raw::c_int;
    pub fn nvshmemx_int16_prod_reduce_on_stream(
        team: nvshmem_team_t,
        dest: *mut i16,
        src: *const i16,
        nreduce: usize,
        stream: cudaStream_t,
    ) -> ::std::os::raw::c_int;
    pub fn nvshmemx_int16_prod_reducescatter_on_stream(
        team: nvshmem_team_t,
        dest: *mut i16,
        src: *const i16,
        nreduce: usize,
        stream: cudaStream_t,
    ) -> ::std::os::raw::c_int;
    pub fn nvshmemx_int16_min_reduce_on_stream(
        team: nvshmem_team_t,
        dest: *mut i16,
        src: *const i16,
        nreduce: usize,
        stream: cudaStream_t,
    ) -> ::std::os::raw::c_int;
    pub fn nvshmemx_int16_min_reducescatter_on_stream(
        team: nvshmem_team_t,
        dest: *mut i16,
        src: *const i16,
        nreduce: usize,
        stream: cudaStream_t,
    ) -> ::std::os::raw::c_int;
    pub fn nvshmemx_int16_max_reduce_on_stream(
        team: nvshmem_team_t,
        dest: *mut i16,
        src: *const i16,
        nreduce: usize,
        stream: cudaStream_t,
    ) -> ::std::os::raw::c_int;
    pub fn nvshmemx_int16_max_reducescatter_on_stream(
        team: nvshmem_team_t,
        dest: *mut i16,
        src: *const i16,
        nreduce: usize,
        stream: cudaStream_t,
    ) -> ::std::os::raw::c_int;
    pub fn nvshmemx_int16_and_reduce_on_stream(
        team: nvshmem_team_t,
        dest: *mut i16,
        src: *const i16,
        nreduce: usize,
        stream: cudaStream_t,
    ) -> ::std::os::raw::c_int;
    pub fn nvshmemx_int16_and_reducescatter_on_stream(
        team: nvshmem_team_t,
        dest: *mut i16,
        src: *const i16,
        nreduce: usize,
        stream: cudaStream_t,
    ) -> ::std::os::raw::c_int;
    pub fn nvshmemx_int16_or_reduce_on_stream(
        team: nvshmem_team_t,
        dest: *mut i16,
        src: *const i16,
        nreduce: usize,
        stream: cudaStream_t,
    ) -> ::std::os::raw::c_int;
    pub fn nvshmemx_int16_or_reducescatter_on_stream(
        team: nvshmem_team_t,
        dest: *mut i16,
        src: *const i16,
        nreduce: usize,
        stream: cudaStream_t,
    ) -> ::std::os::raw::c_int;
    pub fn nvshmemx_int16_xor_reduce_on_stream(
        team: nvshmem_team_t,
        dest: *mut i16,
        src: *const i16,
        nreduce: usize,
        stream: cudaStream_t,
    ) -> ::std::os::raw::c_int;
    pub fn nvshmemx_int16_xor_reducescatter_on_stream(
        team: nvshmem_team_t,
        dest: *mut i16,
        src: *const i16,
        nreduce: usize,
        stream: cudaStream_t,
    ) -> ::std::os::raw::c_int;
    pub fn nvshmemx_int32_sum_reduce_on_stream(
        team: nvshmem_team_t,
        dest: *mut i32,
        src: *const i32,
        nreduce: usize,
        stream: cudaStream_t,
    ) -> ::std::os::raw::c_int;
    pub fn nvshmemx_int32_sum_reducescatter_on_stream(
        team: nvshmem_team_t,
        dest: *mut i32,
        src: *const i32,
        nreduce: usize,
        stream: cudaStream_t,
    ) -> ::std::os::raw::c_int;
    pub fn nvshmemx_int32_prod_reduce_on_stream(
        team: nvshmem_team_t,
        dest: *mut i32,
        src: *const i32,
        nreduce: usize,
        stream: cudaStream_t,
    ) -> ::std::os::raw::c_int;
    pub fn nvshmemx_int32_prod_reducescatter_on_stream(
        team: nvshmem_team_t,
        dest: *mut i32,
        src: *const i32,
        nreduce: usize,
        stream: cudaStream_t,
    ) -> ::std::os::raw::c_int;
    pub fn nvshmemx_int32_min_reduce_on_stream(
        team: nvshmem_team_t,
        dest: *mut i32,
        src: *const i32,
        nreduce: usize,
        stream: cudaStream_t,
    ) -> ::std::os::raw::c_int;
    pub fn nvshmemx_int32_min_reducescatter_on_stream(
        team: nvshmem_team_t,
        dest: *mut i32,
        src: *const i32,
        nreduce: usize,
        stream: cudaStream_t,
    ) -> ::std::os::raw::c_int;
    pub fn nvshmemx_int32_max_reduce_on_stream(
        team: nvshmem_team_t,
        dest: *mut i32,
        src: *const i32,
        nreduce: usize,
        stream: cudaStream_t,
    ) -> ::std::os::raw::c_int;
    pub fn nvshmemx_int32_max_reducescatter_on_stream(
        team: nvshmem_team_t,
        dest: *mut i32,
        src: *const i32,
        nreduce: usize,
        stream: cudaStream_t,
    ) -> ::std::os::raw::c_int;
    pub fn nvshmemx_int32_and_reduce_on_stream(
        team: nvshmem_team_t,
        dest: *mut i32,
        src: *const i32,
        nreduce: usize,
        stream: cudaStream_t,
    ) -> ::std::os::raw::c_int;
    pub fn nvshmemx_int32_and_reducescatter_on_stream(
        team: nvshmem_team_t,
        dest: *mut i32,
        src: *const i32,
        nreduce: usize,
        stream: cudaStream_t,
    ) -> ::std::os::raw::c_int;
    pub fn nvshmemx_int32_or_reduce_on_stream(
        team: nvshmem_team_t,
        dest: *mut i32,
        src: *const i32,
        nreduce: usize,
        stream: cudaStream_t,
    ) -> ::std::os::raw::c_int;
    pub fn nvshmemx_int32_or_reducescatter_on_stream(
        team: nvshmem_team_t,
        dest: *mut i32,
        src: *const i32,
        nreduce: usize,
        stream: cudaStream_t,
    ) -> ::std::os::raw::c_int;
    pub fn nvshmemx_int32_xor_reduce_on_stream(
        team: nvshmem_team_t,
        dest: *mut i32,
        src: *const i32,
        nreduce: usize,
        stream: cudaStream_t,
    ) -> ::std::os::raw::c_int;
    pub fn nvshmemx_int32_xor_reducescatter_on_stream(
        team: nvshmem_team_t,
        dest: *mut i32,
        src: *const i32,
        nreduce: usize,
        stream: cudaStream_t,
    ) -> ::std::os::raw::c_int;
    pub fn nvshmemx_int64_sum_reduce_on_stream(
        team: nvshmem_team_t,
        dest: *mut i64,
        src: *const i64,
        nreduce: usize,
        stream: cudaStream_t,
    ) -> ::std::os::raw::c_int;
    pub fn nvshmemx_int64_sum_reducescatter_on_stream(
        team: nvshmem_team_t,
        dest: *mut i64,
        src: *const i64,
        nreduce: usize,
        stream: cudaStream_t,
    ) -> ::std::os::raw::c_int;
    pub fn nvshmemx_int64_prod_reduce_on_stream(
        team: nvshmem_team_t,
        dest: *mut i64,
        src: *const i64,
        nreduce: usize,
        stream: cudaStream_t,
    ) -> ::std::os::raw::c_int;
    pub fn nvshmemx_int64_prod_reducescatter_on_stream(
        team: nvshmem_team_t,
        dest: *mut i64,
        src: *const i64,
        nreduce: usize,
        stream: cudaStream_t,
    ) -> ::std::os::raw::c_int;
    pub fn nvshmemx_int64_min_reduce_on_stream(
        team: nvshmem_team_t,
        dest: *mut i64,
        src: *const i64,
        nreduce: usize,
        stream: cudaStream_t,
    ) -> ::std::os::raw::c_int;
    pub fn nvshmemx_int64_min_reducescatter_on_stream(
        team: nvshmem_team_t,
        dest: *mut i64,
        src: *const i64,
        nreduce: usize,
        stream: cudaStream_t,
    ) -> ::std::os::raw::c_int;
    pub fn nvshmemx_int64_max_reduce_on_stream(
        team: nvshmem_team_t,
        dest: *mut i64,
        src: *const i64,
        nreduce: usize,
        stream: cudaStream_t,
    ) -> ::std::os::raw::c_int;
    pub fn nvshmemx_int64_max_reducescatter_on_stream(
        team: nvshmem_team_t,
        dest: *mut i64,
        src: *const i64,
        nreduce: usize,
        stream: cudaStream_t,
    ) -> ::std::os::raw::c_int;
    pub fn nvshmemx_int64_and_reduce_on_stream(
        team: nvshmem_team_t,
        dest: *mut i64,
        src: *const i64,
        nreduce: usize,
        stream: cudaStream_t,
    ) -> ::std::os::raw::c_int;
    pub fn nvshmemx_int64_and_reducescatter_on_stream(
        team: nvshmem_team_t,
        dest: *mut i64,
        src: *const i64,
        nreduce: usize,
        stream: cudaStream_t,
    ) -> ::std::os::raw::c_int;
    pub fn nvshmemx_int64_or_reduce_on_stream(
        team: nvshmem_team_t,
        dest: *mut i64,
        src: *const i64,
        nreduce: usize,
        stream: cudaStream_t,
    ) -> ::std::os::raw::c_int;
    pub fn nvshmemx_int64_or_reducescatter_on_stream(
        team: nvshmem_team_t,
        dest: *mut i64,
        src: *const i64,
        nreduce: usize,
        stream: cudaStream_t,
    ) -> ::std::os::raw::c_int;
    pub fn nvshmemx_int64_xor_reduce_on_stream(
        team: nvshmem_team_t,
        dest: *mut i64,
        src: *const i64,
        nreduce: usize,
        stream: cudaStream_t,
    ) -> ::std::os::raw::c_int;
    pub fn nvshmemx_int64_xor_reducescatter_on_stream(
        team: nvshmem_team_t,
        dest: *mut i64,
        src: *const i64,
        nreduce: usize,
        stream: cudaStream_t,
    ) -> ::std::os::raw::c_int;
    pub fn nvshmemx_uint8_sum_reduce_on_stream(
        team: nvshmem_team_t,
        dest: *mut u8,
        src: *const u8,
        nreduce: usize,
        stream: cudaStream_t,
    ) -> ::std::os::raw::c_int;
    pub fn nvshmemx_uint8_sum_reducescatter_on_stream(
        team: nvshmem_team_t,
        dest: *mut u8,
        src: *const u8,
        nreduce: usize,
        stream: cudaStream_t,
    ) -> ::std::os::raw::c_int;
    pub fn nvshmemx_uint8_prod_reduce_on_stream(
        team: nvshmem_team_t,
        dest: *mut u8,
        src: *const u8,
        nreduce: usize,
        stream: cudaStream_t,
    ) -> ::std::os::raw::c_int;
    pub fn nvshmemx_uint8_prod_reducescatter_on_stream(
        team: nvshmem_team_t,
        dest: *mut u8,
        src: *const u8,
        nreduce: usize,
        stream: cudaStream_t,
    ) -> ::std::os::raw::c_int;
    pub fn nvshmemx_uint8_min_reduce_on_stream(
        team: nvshmem_team_t,
        dest: *mut u8,
        src: *const u8,
        nreduce: usize,
        stream: cudaStream_t,
    ) -> ::std::os::raw::c_int;
    pub fn nvshmemx_uint8_min_reducescatter_on_stream(
        team: nvshmem_team_t,
        dest: *mut u8,
        src: *const u8,
        nreduce: usize,
        stream: cudaStream_t,
    ) -> ::std::os::raw::c_int;
    pub fn nvshmemx_uint8_max_reduce_on_stream(
        team: nvshmem_team_t,
        dest: *mut u8,
        src: *const u8,
        nreduce: usize,
        stream: cudaStream_t,
    ) -> ::std::os::raw::c_int;
    pub fn nvshmemx_uint8_max_reducescatter_on_stream(
        team: nvshmem_team_t,
        dest: *mut u8,
        src: *const u8,
        nreduce: usize,
        stream: cudaStream_t,
    ) -> ::std::os::raw::c_int;
    pub fn nvshmemx_uint8_and_reduce_on_stream(
        team: nvshmem_team_t,
        dest: *mut u8,
        src: *const u8,
        nreduce: usize,
        stream: cudaStream_t,
    ) -> ::std::os::raw::c_int;
    pub fn nvshmemx_uint8_and_reducescatter_on_stream(
        team: nvshmem_team_t,
        dest: *mut u8,
        src: *const u8,
        nreduce: usize,
        stream: cudaStream_t,
    ) -> ::std::os::raw::c_int;
    pub fn nvshmemx_uint8_or_reduce_on_stream(
        team: nvshmem_team_t,
        dest: *mut u8,
        src: *const u8,
        nreduce: usize,
        stream: cudaStream_t,
    ) -> ::std::os::raw::c_int;
    pub fn nvshmemx_uint8_or_reducescatter_on_stream(
        team: nvshmem_team_t,
        dest: *mut u8,
        src: *const u8,
        nreduce: usize,
        stream: cudaStream_t,
    ) -> ::std::os::raw::c_int;
    pub fn nvshmemx_uint8_xor_reduce_on_stream(
        team: nvshmem_team_t,
        dest: *mut u8,
        src: *const u8,
        nreduce: usize,
        stream: cudaStream_t,
    ) -> ::std::os::raw::c_int;
    pub fn nvshmemx_uint8_xor_reducescatter_on_stream(
        team: nvshmem_team_t,
        dest: *mut u8,
        src: *const u8,
        nreduce: usize,
        stream: cudaStream_t,
    ) -> ::std::os::raw::c_int;
    pub fn nvshmemx_uint16_sum_reduce_on_stream(
        team: nvshmem_team_t,
        dest: *mut u16,
        src: *const u16,
        nreduce: usize,
        stream: cudaStream_t,
    ) -> ::std::os::raw::c_int;
    pub fn nvshmemx_uint16_sum_reducescatter_on_stream(
        team: nvshmem_team_t,
        dest: *mut u16,
        src: *const u16,
        nreduce: usize,
        stream: cudaStream_t,
    ) -> ::std::os::raw::c_int;
    pub fn nvshmemx_uint16_prod_reduce_on_stream(
        team: nvshmem_team_t,
        dest: *mut u16,
        src: *const u16,
        nreduce: usize,
        stream: cudaStream_t,
    ) -> ::std::os::raw::c_int;
    pub fn nvshmemx_uint16_prod_reducescatter_on_stream(
        team: nvshmem_team_t,
        dest: *mut u16,
        src: *const u16,
        nreduce: usize,
        stream: cudaStream_t,
    ) -> ::std::os::raw::c_int;
    pub fn nvshmemx_uint16_min_reduce_on_stream(
        team: nvshmem_team_t,
        dest: *mut u16,
        src: *const u16,
        nreduce: usize,
        stream: cudaStream_t,
    ) -> ::std::os::raw::c_int;
    pub fn nvshmemx_uint16_min_reducescatter_on_stream(
        team: nvshmem_team_t,
        dest: *mut u16,
        src: *const u16,
        nreduce: usize,
        stream: cudaStream_t,
    ) -> ::std::os::raw::c_int;
    pub fn nvshmemx_uint16_max_reduce_on_stream(
        team: nvshmem_team_t,
        dest: *mut u16,
        src: *const u16,
        nreduce: usize,
        stream: cudaStream_t,
    ) -> ::std::os::raw::c_int;
    pub fn nvshmemx_uint16_max_reducescatter_on_stream(
        team: nvshmem_team_t,
        dest: *mut u16,
        src: *const u16,
        nreduce: usize,
        stream: cudaStream_t,
    ) -> ::std::os::raw::c_int;
    pub fn nvshmemx_uint16_and_reduce_on_stream(
        team: nvshmem_team_t,
        dest: *mut u16,
        src: *const u16,
        nreduce: usize,
        stream: cudaStream_t,
    ) -> ::std::os::raw::c_int;
    pub fn nvshmemx_uint16_and_reducescatter_on_stream(
        team: nvshmem_team_t,
        dest: *mut u16,
        src: *const u16,
        nreduce: usize,
        stream: cudaStream_t,
    ) -> ::std::os::raw::c_int;
    pub fn nvshmemx_uint16_or_reduce_on_stream(
        team: nvshmem_team_t,
        dest: *mut u16,
        src: *const u16,
        nreduce: usize,
        stream: cudaStream_t,
    ) -> ::std::os::raw::c_int;
    pub fn nvshmemx_uint16_or_reducescatter_on_stream(
        team: nvshmem_team_t,
        dest: *mut u16,
        src: *const u16,
        nreduce: usize,
        stream: cudaStream_t,
    ) -> ::std::os::raw::c_int;
    pub fn nvshmemx_uint16_xor_reduce_on_stream(
        team: nvshmem_team_t,
        dest: *mut u16,
        src: *const u16,
        nreduce: usize,
        stream: cudaStream_t,
    ) -> ::std::os::raw::c_int;
    pub fn nvshmemx_uint16_xor_reducescatter_on_stream(
        team: nvshmem_team_t,
        dest: *mut u16,
        src: *const u16,
        nreduce: usize,
        stream: cudaStream_t,
    ) -> ::std::os::raw::c_int;
    pub fn nvshmemx_uint32_sum_reduce_on_stream(
        team: nvshmem_team_t,
        dest: *mut u32,
        src: *const u32,
        nreduce: usize,
        stream: cudaStream_t,
    ) -> ::std::os::raw::c_int;
    pub fn nvshmemx_uint32_sum_reducescatter_on_stream(
        team: nvshmem_team_t,
        dest: *mut u32,
        src: *const u32,
        nreduce: usize,
        stream: cudaStream_t,
    ) -> ::std::os::raw::c_int;
    pub fn nvshmemx_uint32_prod_reduce_on_stream(
        team: nvshmem_team_t,
        dest: *mut u32,
        src: *const u32,
        nreduce: usize,
        stream: cudaStream_t,
    ) -> ::std::os::raw::c_int;
    pub fn nvshmemx_uint32_prod_reducescatter_on_stream(
        team: nvshmem_team_t,
        dest: *mut u32,
        src: *const u32,
        nreduce: usize,
        stream: cudaStream_t,
    ) -> ::std::os::raw::c_int;
    pub fn nvshmemx_uint32_min_reduce_on_stream(
        team: nvshmem_team_t,
        dest: *mut u32,
        src: *const u32,
        nreduce: usize,
        stream: cudaStream_t,
    ) -> ::std::os::raw::c_int;
    pub fn nvshmemx_uint32_min_reducescatter_on_stream(
        team: nvshmem_team_t,
        dest: *mut u32,
        src: *const u32,
        nreduce: usize,
        stream: cudaStream_t,
    ) -> ::std::os::raw::c_int;
    pub fn nvshmemx_uint32_max_reduce_on_stream(
        team: nvshmem_team_t,
        dest: *mut u32,
        src: *const u32,
        nreduce: usize,
        stream: cudaStream_t,
    ) -> ::std::os::raw::c_int;
    pub fn nvshmemx_uint32_max_reducescatter_on_stream(
        team: nvshmem_team_t,
        dest: *mut u32,
        src: *const u32,
        nreduce: usize,
        stream: cudaStream_t,
    ) -> ::std::os::raw::c_int;
    pub fn nvshmemx_uint32_and_reduce_on_stream(
        team: nvshmem_team_t,
        dest: *mut u32,
        src: *const u32,
        nreduce: usize,
        stream: cudaStream_t,
    ) -> ::std::os::raw::c_int;
    pub fn nvshmemx_uint32_and_reducescatter_on_stream(
        team: nvshmem_team_t,
        dest: *mut u32,
        src: *const u32,
        nreduce: usize,
        stream: cudaStream_t,
    ) -> ::std::os::raw::c_int;
    pub fn nvshmemx_uint32_or_reduce_on_stream(
        team: nvshmem_team_t,
        dest: *mut u32,
        src: *const u32,
        nreduce: usize,
        stream: cudaStream_t,
    ) -> ::std::os::raw::c_int;
    pub fn nvshmemx_uint32_or_reducescatter_on_stream(
        team: nvshmem_team_t,
        dest: *mut u32,
        src: *const u32,
        nreduce: usize,
        stream: cudaStream_t,
    ) -> ::std::os::raw::c_int;
    pub fn nvshmemx_uint32_xor_reduce_on_stream(
        team: nvshmem_team_t,
        dest: *mut u32,
        src: *const u32,
        nreduce: usize,
        stream: cudaStream_t,
    ) -> ::std::os::raw::c_int;
    pub fn nvshmemx_uint32_xor_reducescatter_on_stream(
        team: nvshmem_team_t,
        dest: *mut u32,
        src: *const u32,
        nreduce: usize,
        stream: cudaStream_t,
    ) -> ::std::os::raw::c_int;
    pub fn nvshmemx_uint64_sum_reduce_on_stream(
        team: nvshmem_team_t,
        dest: *mut u64,
        src: *const u64,
        nreduce: usize,
        stream: cudaStream_t,
    ) -> ::std::os::raw::c_int;
    pub fn nvshmemx_uint64_sum_reducescatter_on_stream(
        team: nvshmem_team_t,
        dest: *mut u64,
        src: *const u64,
        nreduce: usize,
        stream: cudaStream_t,
    ) -> ::std::os::raw::c_int;
    pub fn nvshmemx_uint64_prod_reduce_on_stream(
        team: nvshmem_team_t,
        dest: *mut u64,
        src: *const u64,
        nreduce: usize,
        stream: cudaStream_t,
    ) -> ::std::os::raw::c_int;
    pub fn nvshmemx_uint64_prod_reducescatter_on_stream(
        team: nvshmem_team_t,
        dest: *mut u64,
        src: *const u64,
        nreduce: usize,
        stream: cudaStream_t,
    ) -> ::std::os::raw::c_int;
    pub fn nvshmemx_uint64_min_reduce_on_stream(
        team: nvshmem_team_t,
        dest: *mut u64,
        src: *const u64,
        nreduce: usize,
        stream: cudaStream_t,
    ) -> ::std::os::raw::c_int;
    pub fn nvshmemx_uint64_min_reducescatter_on_stream(
        team: nvshmem_team_t,
        dest: *mut u64,
        src: *const u64,
        nreduce: usize,
        stream: cudaStream_t,
    ) -> ::std::os::raw::c_int;
    pub fn nvshmemx_uint64_max_reduce_on_stream(
        team: nvshmem_team_t,
        dest: *mut u64,
        src: *const u64,
        nreduce: usize,
        stream: cudaStream_t,
    ) -> ::std::os::raw::c_int;
    pub fn nvshmemx_uint64_max_reducescatter_on_stream(
        team: nvshmem_team_t,
        dest: *mut u64,
        src: *const u64,
        nreduce: usize,
        stream: cudaStream_t,
    ) -> ::std::os::raw::c_int;
    pub fn nvshmemx_uint64_and_reduce_on_stream(
        team: nvshmem_team_t,
        dest: *mut u64,
        src: *const u64,
        nreduce: usize,
        stream: cudaStream_t,
    ) -> ::std::os::raw::c_int;
    pub fn nvshmemx_uint64_and_reducescatter_on_stream(
        team: nvshmem_team_t,
        dest: *mut u64,
        src: *const u64,
        nreduce: usize,
        stream: cudaStream_t,
    ) -> ::std::os::raw::c_int;
    pub fn nvshmemx_uint64_or_reduce_on_stream(
        team: nvshmem_team_t,
        dest: *mut u64,
        src: *const u64,
        nreduce: usize,
        stream: cudaStream_t,
    ) -> ::std::os::raw::c_int;
    pub fn nvshmemx_uint64_or_reducescatter_on_stream(
        team: nvshmem_team_t,
        dest: *mut u64,
        src: *const u64,
        nreduce: usize,
        stream: cudaStream_t,
    ) -> ::std::os::raw::c_int;
    pub fn nvshmemx_uint64_xor_reduce_on_stream(
        team: nvshmem_team_t,
        dest: *mut u64,
        src: *const u64,
        nreduce: usize,
        stream: cudaStream_t,
    ) -> ::std::os::raw::c_int;
    pub fn nvshmemx_uint64_xor_reducescatter_on_stream(
        team: nvshmem_team_t,
        dest: *mut u64,
        src: *const u64,
        nreduce: usize,
        stream: cudaStream_t,
    ) -> ::std::os::raw::c_int;
    pub fn nvshmemx_half_sum_reduce_on_stream(
        team: nvshmem_team_t,
        dest: *mut half,
        src: *const half,
        nreduce: usize,
        stream: cudaStream_t,
    ) -> ::std::os::raw::c_int;
    pub fn nvshmemx_half_sum_reducescatter_on_stream(
        team: nvshmem_team_t,
        dest: *mut half,
        src: *const half,
        nreduce: usize,
        stream: cudaStream_t,
    ) -> ::std::os::raw::c_int;
    pub fn nvshmemx_half_prod_reduce_on_stream(
        team: nvshmem_team_t,
        dest: *mut half,
        src: *const half,
        nreduce: usize,
        stream: cudaStream_t,
    ) -> ::std::os::raw::c_int;
    pub fn nvshmemx_half_prod_reducescatter_on_stream(
        team: nvshmem_team_t,
        dest: *mut half,
        src: *const half,
        nreduce: usize,
        stream: cudaStream_t,
    ) -> ::std::os::raw::c_int;
    pub fn nvshmemx_half_min_reduce_on_stream(
        team: nvshmem_team_t,
        dest: *mut half,
        src: *const half,
        nreduce: usize,
        stream: cudaStream_t,
    ) -> ::std::os::raw::c_int;
    pub fn nvshmemx_half_min_reducescatter_on_stream(
        team: nvshmem_team_t,
        dest: *mut half,
        src: *const half,
        nreduce: usize,
        stream: cudaStream_t,
    ) -> ::std::os::raw::c_int;
    pub fn nvshmemx_half_max_reduce_on_stream(
        team: nvshmem_team_t,
        dest: *mut half,
        src: *const half,
        nreduce: usize,
        stream: cudaStream_t,
    ) -> ::std::os::raw::c_int;
    pub fn nvshmemx_half_max_reducescatter_on_stream(
        team: nvshmem_team_t,
        dest: *mut half,
        src: *const half,
        nreduce: usize,
        stream: cudaStream_t,
    ) -> ::std::os::raw::c_int;
    pub fn nvshmemx_bfloat16_sum_reduce_on_stream(
        team: nvshmem_team_t,
        dest: *mut __nv_bfloat16,
        src: *const __nv_bfloat16,
        nreduce: usize,
        stream: cudaStream_t,
    ) -> ::std::os::raw::c_int;
    pub fn nvshmemx_bfloat16_sum_reducescatter_on_stream(
        team: nvshmem_team_t,
        dest: *mut __nv_bfloat16,
        src: *const __nv_bfloat16,
        nreduce: usize,
        stream: cudaStream_t,
    ) -> ::std::os::raw::c_int;
    pub fn nvshmemx_bfloat16_prod_reduce_on_stream(
        team: nvshmem_team_t,
        dest: *mut __nv_bfloat16,
        src: *const __nv_bfloat16,
        nreduce: usize,
        stream: cudaStream_t,
    ) -> ::std::os::raw::c_int;
    pub fn nvshmemx_bfloat16_prod_reducescatter_on_stream(
        team: nvshmem_team_t,
        dest: *mut __nv_bfloat16,
        src: *const __nv_bfloat16,
        nreduce: usize,
        stream: cudaStream_t,
    ) -> ::std::os::raw::c_int;
    pub fn nvshmemx_bfloat16_min_reduce_on_stream(
        team: nvshmem_team_t,
        dest: *mut __nv_bfloat16,
        src: *const __nv_bfloat16,
        nreduce: usize,
        stream: cudaStream_t,
    ) -> ::std::os::raw::c_int;
    pub fn nvshmemx_bfloat16_min_reducescatter_on_stream(
        team: nvshmem_team_t,
        dest: *mut __nv_bfloat16,
        src: *const __nv_bfloat16,
        nreduce: usize,
        stream: cudaStream_t,
    ) -> ::std::os::raw::c_int;
    pub fn nvshmemx_bfloat16_max_reduce_on_stream(
        team: nvshmem_team_t,
        dest: *mut __nv_bfloat16,
        src: *const __nv_bfloat16,
        nreduce: usize,
        stream: cudaStream_t,
    ) -> ::std::os::raw::c_int;
    pub fn nvshmemx_bfloat16_max_reducescatter_on_stream(
        team: nvshmem_team_t,
        dest: *mut __nv_bfloat16,
        src: *const __nv_bfloat16,
        nreduce: usize,
        stream: cudaStream_t,
    ) -> ::std::os::raw::c_int;
    pub fn nvshmemx_float_sum_reduce_on_stream(
        team: nvshmem_team_t,
        dest: *mut f32,
        src: *const f32,
        nreduce: usize,
        stream: cudaStream_t,
    ) -> ::std::os::raw::c_int;
    pub fn nvshmemx_float_sum_reducescatter_on_stream(
        team: nvshmem_team_t,
        dest: *mut f32,
        src: *const f32,
        nreduce: usize,
        stream: cudaStream_t,
    ) -> ::std::os::raw::c_int;
    pub fn nvshmemx_float_prod_reduce_on_stream(
        team: nvshmem_team_t,
        dest: *mut f32,
        src: *const f32,
        nreduce: usize,
        stream: cudaStream_t,
    ) -> ::std::os::raw::c_int;
    pub fn nvshmemx_float_prod_reducescatter_on_stream(
        team: nvshmem_team_t,
        dest: *mut f32,
        src: *const f32,
        nreduce: usize,
        stream: cudaStream_t,
    ) -> ::std::os::raw::c_int;
    pub fn nvshmemx_float_min_reduce_on_stream(
        team: nvshmem_team_t,
        dest: *mut f32,
        src: *const f32,
        nreduce: usize,
        stream: cudaStream_t,
    ) -> ::std::os::raw::c_int;
    pub fn nvshmemx_float_min_reducescatter_on_stream(
        team: nvshmem_team_t,
        dest: *mut f32,
        src: *const f32,
        nreduce: usize,
        stream: cudaStream_t,
    ) -> ::std::os::raw::c_int;
    pub fn nvshmemx_float_max_reduce_on_stream(
        team: nvshmem_team_t,
        dest: *mut f32,
        src: *const f32,
        nreduce: usize,
        stream: cudaStream_t,
    ) -> ::std::os::raw::c_int;
    pub fn nvshmemx_float_max_reducescatter_on_stream(
        team: nvshmem_team_t,
        dest: *mut f32,
        src: *const f32,
        nreduce: usize,
        stream: cudaStream_t,
    ) -> ::std::os::raw::c_int;
    pub fn nvshmemx_double_sum_reduce_on_stream(
        team: nvshmem_team_t,
        dest: *mut f64,
        src: *const f64,
        nreduce: usize,
        stream: cudaStream_t,
    ) -> ::std::os::raw::c_int;
    pub fn nvshmemx_double_sum_reducescatter_on_stream(
        team: nvshmem_team_t,
        dest: *mut f64,
        src: *const f64,
        nreduce: usize,
        stream: cudaStream_t,
    ) -> ::std::os::raw::c_int;
    pub fn nvshmemx_double_prod_reduce_on_stream(
        team: nvshmem_team_t,
        dest: *mut f64,
        src: *const f64,
        nreduce: usize,
        stream: cudaStream_t,
    ) -> ::std::os::raw::c_int;
    pub fn nvshmemx_double_prod_reducescatter_on_stream(
        team: nvshmem_team_t,
        dest: *mut f64,
        src: *const f64,
        nreduce: usize,
        stream: cudaStream_t,
    ) -> ::std::os::raw::c_int;
    pub fn nvshmemx_double_min_reduce_on_stream(
        team: nvshmem_team_t,
        dest: *mut f64,
        src: *const f64,
        nreduce: usize,
        stream: cudaStream_t,
    ) -> ::std::os::raw::c_int;
    pub fn nvshmemx_double_min_reducescatter_on_stream(
        team: nvshmem_team_t,
        dest: *mut f64,
        src: *const f64,
        nreduce: usize,
        stream: cudaStream_t,
    ) -> ::std::os::raw::c_int;
    pub fn nvshmemx_double_max_reduce_on_stream(
        team: nvshmem_team_t,
        dest: *mut f64,
        src: *const f64,
        nreduce: usize,
        stream: cudaStream_t,
    ) -> ::std::os::raw::c_int;
    pub fn nvshmemx_double_max_reducescatter_on_stream(
        team: nvshmem_team_t,
        dest: *mut f64,
        src: *const f64,
        nreduce: usize,
        stream: cudaStream_t,
    ) -> ::std::os::raw::c_int;
    pub fn gpucommNvshmemUniqueIdInit(id: *mut nvshmemx_uniqueid_t);
    pub fn gpucommNvshmemAttrInit(attr: *mut nvshmemx_init_attr_t);
    pub fn gpucommNvshmemTeamConfigInit(config: *mut nvshmem_team_config_t);
    pub fn gpucommNvshmemHasNccl() -> ::std::os::raw::c_int;
    pub fn gpucommNvshmemCollectiveLaunch(
        kernel: *const ::std::os::raw::c_void,
        grid: *const ::std::os::raw::c_uint,
        block: *const ::std::os::raw::c_uint,
        args: *mut *mut ::std::os::raw::c_void,
        shared: usize,
        stream: cudaStream_t,
    ) -> ::std::os::raw::c_int;
    pub fn gpucommNvshmemCollectiveLaunchConfig(
        config: *const ::std::os::raw::c_void,
        kernel: *const ::std::os::raw::c_void,
        args: *mut *mut ::std::os::raw::c_void,
    ) -> ::std::os::raw::c_int;
    pub fn gpucommNvshmemCollectiveLaunchGrid(
        kernel: *const ::std::os::raw::c_void,
        block: *const ::std::os::raw::c_uint,
        shared: usize,
        blocks: *mut ::std::os::raw::c_int,
    ) -> ::std::os::raw::c_int;
}
