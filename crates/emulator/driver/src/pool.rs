//! Pools of stream-ordered memory. They cache nothing: freed memory goes back to its device.

use crate::alloc::allocate_async;
use crate::error::{Code, Outcome};
use crate::state::{Driver, State, driver};
use crate::types::{CUdevice, CUdeviceptr, CUmemoryPool, CUstream, In, Out};
use crate::unsupported::unsupported;

/// `CUmemLocation`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct MemLocation {
    /// A `CUmemLocationType`: 1 is a device.
    pub kind: i32,
    /// The device.
    pub id: i32,
}

/// The head of `CUmemPoolProps`; what follows is for sharing between processes.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct MemPoolProps {
    /// A `CUmemAllocationType`: 1 is pinned, the only one for pools.
    pub allocation: i32,
    /// The kind of handle by which its memory is shared with other processes; 0 for none.
    pub handles: i32,
    /// The place of its memory.
    pub location: MemLocation,
}

/// `CUmemAccessDesc`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct MemAccess {
    /// The device or the host that the access is for.
    pub location: MemLocation,
    /// 0 for no access, 3 for reading and writing.
    pub flags: i32,
}

const DEVICE: i32 = 1;
const READ_WRITE: i32 = 3;

impl State {
    /// The device of a pool.
    pub(crate) fn pool(&self, driver: &Driver, pool: CUmemoryPool) -> Outcome<u32> {
        let default = (0..driver.config.devices).find(|d| default_of(*d) == pool);
        default
            .or_else(|| self.made_pools.get(&pool).copied())
            .ok_or(Code::INVALID_VALUE)
    }
}

/// The handle of a device's default pool.
fn default_of(device: u32) -> CUmemoryPool {
    CUmemoryPool(0x00c0_da01_0000_0000 | u64::from(device) << 4)
}

/// The devices of a pool and of a location that is given access to it.
fn access(pool: CUmemoryPool, location: MemLocation) -> Outcome<(u32, u32)> {
    let driver = driver()?;
    let owner = driver.lock().pool(driver, pool)?;
    if location.kind != DEVICE {
        return Err(Code::INVALID_VALUE);
    }
    Ok((owner, driver.device(location.id)?))
}

export! {
    fn cuDeviceGetDefaultMemPool(pool: Out<CUmemoryPool>, device: CUdevice) {
        pool.put(default_of(driver()?.device(device)?))
    }

    fn cuDeviceGetMemPool(pool: Out<CUmemoryPool>, device: CUdevice) {
        let driver = driver()?;
        let device = driver.device(device)?;
        let set = driver.lock().device_pools.get(&device).copied();
        pool.put(set.unwrap_or(default_of(device)))
    }

    fn cuDeviceSetMemPool(device: CUdevice, pool: CUmemoryPool) {
        let driver = driver()?;
        let device = driver.device(device)?;
        let mut state = driver.lock();
        if state.pool(driver, pool)? != device {
            return Err(Code::INVALID_VALUE);
        }
        state.device_pools.insert(device, pool);
        Ok(())
    }

    fn cuMemPoolCreate(pool: Out<CUmemoryPool>, props: In<MemPoolProps>) {
        let props = props.get()?;
        if props.allocation != 1 || props.location.kind != DEVICE {
            return Err(Code::INVALID_VALUE);
        }
        if props.handles != 0 {
            return Err(unsupported("memory pools that are shared between processes"));
        }
        let driver = driver()?;
        let device = driver.device(props.location.id)?;
        let mut state = driver.lock();
        let handle = CUmemoryPool(state.handle());
        pool.put(handle)?;
        state.made_pools.insert(handle, device);
        Ok(())
    }

    fn cuMemPoolDestroy(pool: CUmemoryPool) {
        let mut state = driver()?.lock();
        // Memory that was allocated from it stays until it is freed.
        state.made_pools.remove(&pool).ok_or(Code::INVALID_VALUE)?;
        state.device_pools.retain(|_, p| *p != pool);
        Ok(())
    }

    fn cuMemPoolTrimTo(pool: CUmemoryPool, _keep: usize) {
        let driver = driver()?;
        driver.lock().pool(driver, pool).map(|_| ())
    }

    fn cuMemPoolSetAttribute(pool: CUmemoryPool, attribute: i32, value: In<u64>) {
        let driver = driver()?;
        let mut state = driver.lock();
        state.pool(driver, pool)?;
        let value = match attribute {
            1..=3 => u64::from(In::<u32>::from_raw(value.raw().cast()).get()? != 0),
            4 => value.get()?,
            // The high-water marks may be set back to zero.
            6 | 8 if value.get()? == 0 => 0,
            _ => return Err(Code::INVALID_VALUE),
        };
        state.pool_attributes.insert((pool, attribute), value);
        Ok(())
    }

    fn cuMemPoolGetAttribute(pool: CUmemoryPool, attribute: i32, value: Out<u64>) {
        let driver = driver()?;
        let state = driver.lock();
        let device = state.pool(driver, pool)?;
        let set = state.pool_attributes.get(&(pool, attribute)).copied();
        match attribute {
            1..=3 => Out::<u32>::from_raw(value.raw().cast()).put(set.unwrap_or(1) as u32),
            4 => value.put(set.unwrap_or(0)),
            5..=8 => value.put(driver.memory.of_device(device).iter().map(|r| r.len).sum()),
            _ => Err(Code::INVALID_VALUE),
        }
    }

    fn cuMemPoolSetAccess(pool: CUmemoryPool, list: In<MemAccess>, count: usize) {
        for MemAccess { location, flags } in list.list(count)? {
            let (owner, who) = access(pool, location)?;
            match flags {
                // Here access is given to all memory of the owner, as by `cuCtxEnablePeerAccess`.
                0 | READ_WRITE if owner != who => driver()?.memory.set_peer(who, owner, flags == READ_WRITE),
                READ_WRITE => false,
                _ => return Err(Code::INVALID_VALUE),
            };
        }
        Ok(())
    }

    fn cuMemPoolGetAccess(flags: Out<i32>, pool: CUmemoryPool, location: In<MemLocation>) {
        let (owner, who) = access(pool, location.get()?)?;
        let may = owner == who || driver()?.memory.is_peer(who, owner);
        flags.put(if may { READ_WRITE } else { 0 })
    }

    fn cuMemAllocFromPoolAsync(pointer: Out<CUdeviceptr>, bytes: usize, pool: CUmemoryPool, stream: CUstream) {
        allocate_async(pointer, bytes, Some(pool), stream)
    }
}
