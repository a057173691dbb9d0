//! Names and meanings of the driver's result codes, as of CUDA 13. This table replaces the driver's own functions, which
//! need a driver; a code from a newer driver still prints.

/// `CUDA_ERROR_OUT_OF_MEMORY`.
pub(crate) const OUT_OF_MEMORY: i32 = 2;

/// The name and the meaning of a code. A code that is not in the table is named by its number.
pub(crate) fn describe(code: i32) -> (String, String) {
    match TABLE.iter().find(|(c, ..)| *c == code) {
        Some((_, name, meaning)) => (format!("CUDA_ERROR_{name}"), (*meaning).to_string()),
        None => (
            format!("CUDA error {code}"),
            "not known to this program, perhaps of a newer driver".to_string(),
        ),
    }
}

const TABLE: &[(i32, &str, &str)] = &[
    (1, "INVALID_VALUE", "an argument is out of its range"),
    (2, "OUT_OF_MEMORY", "there is not enough memory"),
    (3, "NOT_INITIALIZED", "no driver has been initialised"),
    (4, "DEINITIALIZED", "the driver is shutting down with the process"),
    (34, "STUB_LIBRARY", "this is the toolkit's stub and not a driver"),
    (
        46,
        "DEVICE_UNAVAILABLE",
        "the device is busy or in exclusive use by another process",
    ),
    (100, "NO_DEVICE", "no CUDA device was found"),
    (101, "INVALID_DEVICE", "there is no device of this number"),
    (102, "DEVICE_NOT_LICENSED", "the device's licence is not valid"),
    (200, "INVALID_IMAGE", "the kernel image is not valid"),
    (201, "INVALID_CONTEXT", "there is no valid context on this thread"),
    (205, "MAP_FAILED", "memory could not be mapped"),
    (206, "UNMAP_FAILED", "memory could not be unmapped"),
    (
        209,
        "NO_BINARY_FOR_GPU",
        "the image holds no code for this device's architecture",
    ),
    (
        214,
        "ECC_UNCORRECTABLE",
        "the memory has an error that ECC cannot correct: the device must be reset",
    ),
    (215, "UNSUPPORTED_LIMIT", "the device does not know this limit"),
    (216, "CONTEXT_ALREADY_IN_USE", "the context is bound to another thread"),
    (
        217,
        "PEER_ACCESS_UNSUPPORTED",
        "the two devices cannot reach each other's memory",
    ),
    (218, "INVALID_PTX", "the PTX does not compile"),
    (
        220,
        "NVLINK_UNCORRECTABLE",
        "NVLink has an error that cannot be corrected",
    ),
    (221, "JIT_COMPILER_NOT_FOUND", "the driver's PTX compiler was not found"),
    (
        222,
        "UNSUPPORTED_PTX_VERSION",
        "the PTX is newer than the driver: update the driver",
    ),
    (223, "JIT_COMPILATION_DISABLED", "compiling PTX is disabled"),
    (
        224,
        "UNSUPPORTED_EXEC_AFFINITY",
        "the device does not support this affinity",
    ),
    (
        225,
        "UNSUPPORTED_DEVSIDE_SYNC",
        "the code synchronises on the device, which is no longer supported",
    ),
    (
        226,
        "CONTAINED",
        "a fault was contained; the process must be started anew",
    ),
    (300, "INVALID_SOURCE", "the kernel source is not valid"),
    (301, "FILE_NOT_FOUND", "the file was not found"),
    (302, "SHARED_OBJECT_SYMBOL_NOT_FOUND", "a shared library lacks a symbol"),
    (
        303,
        "SHARED_OBJECT_INIT_FAILED",
        "a shared library could not be initialised",
    ),
    (304, "OPERATING_SYSTEM", "a call of the operating system failed"),
    (400, "INVALID_HANDLE", "a handle is not valid, or of another context"),
    (401, "ILLEGAL_STATE", "the object is not in a state that allows this"),
    (500, "NOT_FOUND", "no symbol has this name"),
    (600, "NOT_READY", "earlier work has not finished"),
    (
        700,
        "ILLEGAL_ADDRESS",
        "a kernel touched memory that is not its own; the process must be started anew",
    ),
    (
        701,
        "LAUNCH_OUT_OF_RESOURCES",
        "the launch asks for more threads, registers or shared memory than there are",
    ),
    (
        702,
        "LAUNCH_TIMEOUT",
        "a kernel ran longer than the system allows; the process must be started anew",
    ),
    (
        704,
        "PEER_ACCESS_ALREADY_ENABLED",
        "access to this peer is enabled already",
    ),
    (705, "PEER_ACCESS_NOT_ENABLED", "access to this peer is not enabled"),
    (708, "PRIMARY_CONTEXT_ACTIVE", "the primary context is in use already"),
    (709, "CONTEXT_IS_DESTROYED", "the context was destroyed"),
    (
        710,
        "ASSERT",
        "a device-side assertion failed; the process must be started anew",
    ),
    (711, "TOO_MANY_PEERS", "the hardware allows no more peers"),
    (
        712,
        "HOST_MEMORY_ALREADY_REGISTERED",
        "this host memory is registered already",
    ),
    (713, "HOST_MEMORY_NOT_REGISTERED", "this host memory is not registered"),
    (
        714,
        "HARDWARE_STACK_ERROR",
        "a kernel's call stack is corrupt; the process must be started anew",
    ),
    (
        715,
        "ILLEGAL_INSTRUCTION",
        "a kernel met an illegal instruction; the process must be started anew",
    ),
    (
        716,
        "MISALIGNED_ADDRESS",
        "a kernel used an address that is not aligned; the process must be started anew",
    ),
    (
        717,
        "INVALID_ADDRESS_SPACE",
        "an instruction met an address of the wrong space; the process must be started anew",
    ),
    (
        718,
        "INVALID_PC",
        "a kernel's program counter left the program; the process must be started anew",
    ),
    (
        719,
        "LAUNCH_FAILED",
        "a kernel failed; the process must be started anew",
    ),
    (
        720,
        "COOPERATIVE_LAUNCH_TOO_LARGE",
        "a cooperative launch has more blocks than fit at once",
    ),
    (800, "NOT_PERMITTED", "this is not permitted"),
    (801, "NOT_SUPPORTED", "the driver or the device does not support this"),
    (
        802,
        "SYSTEM_NOT_READY",
        "the system is not ready for CUDA: is the fabric manager running?",
    ),
    (
        803,
        "SYSTEM_DRIVER_MISMATCH",
        "the driver's library and kernel module differ in version: reboot after an update",
    ),
    (
        804,
        "COMPAT_NOT_SUPPORTED_ON_DEVICE",
        "the compatibility library does not support this device",
    ),
    (805, "MPS_CONNECTION_FAILED", "the MPS server could not be reached"),
    (806, "MPS_RPC_FAILURE", "a call of the MPS server failed"),
    (807, "MPS_SERVER_NOT_READY", "the MPS server is not ready"),
    (808, "MPS_MAX_CLIENTS_REACHED", "the MPS server takes no more clients"),
    (
        809,
        "MPS_MAX_CONNECTIONS_REACHED",
        "the MPS server takes no more connections",
    ),
    (810, "MPS_CLIENT_TERMINATED", "the MPS server ended this client"),
    (
        811,
        "CDP_NOT_SUPPORTED",
        "kernels that launch kernels are not supported",
    ),
    (
        812,
        "CDP_VERSION_MISMATCH",
        "the versions of kernels that launch kernels differ",
    ),
    (
        900,
        "STREAM_CAPTURE_UNSUPPORTED",
        "this cannot be done while a stream is captured",
    ),
    (
        901,
        "STREAM_CAPTURE_INVALIDATED",
        "an earlier error has invalidated the capture",
    ),
    (902, "STREAM_CAPTURE_MERGE", "this would merge two captures"),
    (903, "STREAM_CAPTURE_UNMATCHED", "this stream did not begin the capture"),
    (
        904,
        "STREAM_CAPTURE_UNJOINED",
        "the capture has a branch that was not joined to its stream",
    ),
    (
        905,
        "STREAM_CAPTURE_ISOLATION",
        "this would depend on work outside of the capture",
    ),
    (
        906,
        "STREAM_CAPTURE_IMPLICIT",
        "the capture would depend on the NULL stream",
    ),
    (907, "CAPTURED_EVENT", "the event was last recorded in a capture"),
    (
        908,
        "STREAM_CAPTURE_WRONG_THREAD",
        "the capture was begun on another thread",
    ),
    (909, "TIMEOUT", "waiting took too long"),
    (
        910,
        "GRAPH_EXEC_UPDATE_FAILURE",
        "the graph differs in more than its parameters",
    ),
    (911, "EXTERNAL_DEVICE", "a device outside of CUDA failed"),
    (912, "INVALID_CLUSTER_SIZE", "the cluster does not fit the device"),
    (913, "FUNCTION_NOT_LOADED", "the function is not loaded"),
    (914, "INVALID_RESOURCE_TYPE", "the resource is of another type"),
    (
        915,
        "INVALID_RESOURCE_CONFIGURATION",
        "the resource is not configured for this",
    ),
    (916, "KEY_ROTATION", "the device's keys are being changed"),
    (999, "UNKNOWN", "the driver does not say more"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_in_order_and_unknown_ones_print_as_numbers() {
        assert!(TABLE.windows(2).all(|w| w[0].0 < w[1].0));
        assert_eq!(describe(2).0, "CUDA_ERROR_OUT_OF_MEMORY");
        assert!(describe(4711).0.contains("4711"));
    }
}
