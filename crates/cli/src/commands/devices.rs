//! `kiln devices`: the devices that this build can compute on.

use crate::args::DevicesArgs;
use crate::device::list_devices;
use crate::error::Result;
use crate::output::{self, line};
use serde_json::json;

pub(crate) fn run(args: DevicesArgs) -> Result<u8> {
    let devices = list_devices();
    if args.json {
        let each: Vec<_> = devices
            .iter()
            .map(|d| {
                let mut each = d.details.clone();
                each.extend([
                    ("name".to_string(), json!(d.name)),
                    ("usable".to_string(), json!(d.usable)),
                    ("about".to_string(), json!(d.description)),
                ]);
                each
            })
            .collect();
        output::json(&json!({ "devices": each }));
        return Ok(0);
    }
    let width = devices.iter().map(|d| d.name.len()).max().unwrap_or(0);
    for device in devices {
        let usable = if device.usable { "usable    " } else { "not usable" };
        line(&format!("{:width$}  {usable}  {}", device.name, device.description));
    }
    Ok(0)
}
