//! The driver's error codes, their names and meanings.

use std::ffi::CStr;

/// A `CUresult`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct Code(pub i32);

/// The result of a call inside of the driver.
pub(crate) type Outcome<T = ()> = Result<T, Code>;

macro_rules! codes {
    ($($code:literal $name:ident $text:literal;)*) => {
        #[allow(missing_docs, reason = "each is named and explained by its own text")]
        impl Code {
            $(pub const $name: Self = Self($code);)*
        }

        /// The name and the meaning of a code, if it is one.
        pub(crate) fn lookup(code: i32) -> Option<(&'static CStr, &'static CStr)> {
            let texts = match code {
                $($code => (concat!("CUDA_ERROR_", stringify!($name), "\0"), concat!($text, "\0")),)*
                _ => return None,
            };
            let text = |s: &'static str| CStr::from_bytes_with_nul(s.as_bytes()).ok();
            Some((if code == 0 { c"CUDA_SUCCESS" } else { text(texts.0)? }, text(texts.1)?))
        }
    };
}

codes! {
    0 SUCCESS "no error";
    1 INVALID_VALUE "invalid argument";
    2 OUT_OF_MEMORY "out of memory";
    3 NOT_INITIALIZED "initialization error";
    4 DEINITIALIZED "driver shutting down";
    5 PROFILER_DISABLED "profiler disabled while using external profiling tool";
    34 STUB_LIBRARY "CUDA driver is a stub library";
    46 DEVICE_UNAVAILABLE "CUDA-capable device(s) is/are busy or unavailable";
    100 NO_DEVICE "no CUDA-capable device is detected";
    101 INVALID_DEVICE "invalid device ordinal";
    200 INVALID_IMAGE "device kernel image is invalid";
    201 INVALID_CONTEXT "invalid device context";
    209 NO_BINARY_FOR_GPU "no kernel image is available for execution on the device";
    215 UNSUPPORTED_LIMIT "limit is not supported on this architecture";
    216 CONTEXT_ALREADY_IN_USE "exclusive-thread device already in use by a different thread";
    217 PEER_ACCESS_UNSUPPORTED "peer access is not supported between these two devices";
    218 INVALID_PTX "a PTX JIT compilation failed";
    221 JIT_COMPILER_NOT_FOUND "PTX JIT compiler library not found";
    222 UNSUPPORTED_PTX_VERSION "the provided PTX was compiled with an unsupported toolchain";
    300 INVALID_SOURCE "device kernel image is invalid";
    301 FILE_NOT_FOUND "file not found";
    302 SHARED_OBJECT_SYMBOL_NOT_FOUND "shared object symbol not found";
    304 OPERATING_SYSTEM "OS call failed or operation not supported on this OS";
    400 INVALID_HANDLE "invalid resource handle";
    401 ILLEGAL_STATE "the operation cannot be performed in the present state";
    500 NOT_FOUND "named symbol not found";
    600 NOT_READY "device not ready";
    700 ILLEGAL_ADDRESS "an illegal memory access was encountered";
    701 LAUNCH_OUT_OF_RESOURCES "too many resources requested for launch";
    702 LAUNCH_TIMEOUT "the launch timed out and was terminated";
    704 PEER_ACCESS_ALREADY_ENABLED "peer access is already enabled";
    705 PEER_ACCESS_NOT_ENABLED "peer access has not been enabled";
    708 PRIMARY_CONTEXT_ACTIVE "cannot set while device is active in this process";
    709 CONTEXT_IS_DESTROYED "context is destroyed";
    710 ASSERT "device-side assert triggered";
    712 HOST_MEMORY_ALREADY_REGISTERED "part or all of the requested memory range is already mapped";
    713 HOST_MEMORY_NOT_REGISTERED "pointer does not correspond to a registered memory region";
    714 HARDWARE_STACK_ERROR "hardware stack error";
    715 ILLEGAL_INSTRUCTION "an illegal instruction was encountered";
    716 MISALIGNED_ADDRESS "misaligned address";
    717 INVALID_ADDRESS_SPACE "operation not supported on global/shared address space";
    718 INVALID_PC "invalid program counter";
    719 LAUNCH_FAILED "unspecified launch failure";
    720 COOPERATIVE_LAUNCH_TOO_LARGE "too many blocks in cooperative launch";
    800 NOT_PERMITTED "operation not permitted";
    801 NOT_SUPPORTED "operation not supported";
    802 SYSTEM_NOT_READY "system not yet initialized";
    803 SYSTEM_DRIVER_MISMATCH "system has unsupported display driver / cuda driver combination";
    900 STREAM_CAPTURE_UNSUPPORTED "operation not permitted when stream is capturing";
    901 STREAM_CAPTURE_INVALIDATED "operation failed due to a previous error during capture";
    902 STREAM_CAPTURE_MERGE "operation would result in a merge of separate capture sequences";
    903 STREAM_CAPTURE_UNMATCHED "capture was not ended in the same stream as it began";
    904 STREAM_CAPTURE_UNJOINED "capturing stream has unjoined work";
    905 STREAM_CAPTURE_ISOLATION "dependency created on uncaptured work in another stream";
    906 STREAM_CAPTURE_IMPLICIT "operation would make the legacy stream depend on a capturing blocking stream";
    907 CAPTURED_EVENT "operation not permitted on an event last recorded in a capturing stream";
    908 STREAM_CAPTURE_WRONG_THREAD "attempt to terminate a thread-local capture sequence from another thread";
    909 TIMEOUT "wait operation timed out";
    910 GRAPH_EXEC_UPDATE_FAILURE "the graph update was not performed because it included changes which violated constraints specific to instantiated graph update";
    911 EXTERNAL_DEVICE "an async error has occurred in external entity outside of CUDA";
    912 INVALID_CLUSTER_SIZE "a kernel launch error has occurred due to cluster misconfiguration";
    999 UNKNOWN "unknown error";
}

impl Code {
    /// The code's name, as `cuGetErrorName` gives it.
    pub fn name(self) -> &'static str {
        lookup(self.0)
            .and_then(|(name, _)| name.to_str().ok())
            .unwrap_or("unrecognized error code")
    }
}
