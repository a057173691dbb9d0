//! `kiln devices`: what this build can compute on.

use crate::args::DevicesArgs;
use crate::device::list;
use crate::error::Result;
use crate::output::{line, table};
use serde_json::json;

pub(crate) fn run(args: DevicesArgs) -> Result<u8> {
    let devices = list();
    if args.json {
        let each: Vec<_> = devices
            .iter()
            .map(|d| {
                let mut each = d.details.clone();
                each.extend([
                    ("name".to_string(), json!(d.name)),
                    ("usable".to_string(), json!(d.usable)),
                    ("about".to_string(), json!(d.about)),
                ]);
                each
            })
            .collect();
        line(&json!({ "devices": each }).to_string());
        return Ok(0);
    }
    let rows: Vec<Vec<String>> = devices
        .iter()
        .map(|d| {
            let usable = if d.usable { "yes" } else { "no" };
            vec![d.name.clone(), usable.to_string(), d.about.clone()]
        })
        .collect();
    line(&table(&["device", "usable", "about"], &rows));
    Ok(0)
}
