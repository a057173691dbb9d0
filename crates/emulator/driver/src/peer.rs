//! Peer access between devices. Every pair of devices supports it; it has to be enabled.

use crate::error::{Code, Outcome};
use crate::state::driver;
use crate::types::{CUcontext, CUdevice, Out};

/// The devices of the current context and of another one on another device.
fn pair(peer: CUcontext) -> Outcome<(u32, u32)> {
    let state = driver()?.lock();
    let here = state.current_device()?;
    let there = state.contexts.get(&peer).ok_or(Code::INVALID_CONTEXT)?.device;
    if here == there {
        return Err(Code::INVALID_CONTEXT);
    }
    Ok((here, there))
}

export! {
    fn cuDeviceCanAccessPeer(can: Out<i32>, device: CUdevice, peer: CUdevice) {
        let driver = driver()?;
        let (device, peer) = (driver.device(device)?, driver.device(peer)?);
        can.put(i32::from(device != peer))
    }

    fn cuDeviceGetP2PAttribute(value: Out<i32>, attribute: i32, device: CUdevice, peer: CUdevice) {
        let driver = driver()?;
        let (device, peer) = (driver.device(device)?, driver.device(peer)?);
        if device == peer {
            return Err(Code::INVALID_DEVICE);
        }
        match attribute {
            1 => value.put(0),
            2 | 3 => value.put(1),
            4 => value.put(0),
            _ => Err(Code::INVALID_VALUE),
        }
    }

    fn cuCtxEnablePeerAccess(peer: CUcontext, flags: u32) {
        if flags != 0 {
            return Err(Code::INVALID_VALUE);
        }
        let (here, there) = pair(peer)?;
        let changed = driver()?.memory.set_peer(here, there, true);
        if changed { Ok(()) } else { Err(Code::PEER_ACCESS_ALREADY_ENABLED) }
    }

    fn cuCtxDisablePeerAccess(peer: CUcontext) {
        let (here, there) = pair(peer)?;
        let changed = driver()?.memory.set_peer(here, there, false);
        if changed { Ok(()) } else { Err(Code::PEER_ACCESS_NOT_ENABLED) }
    }
}
