//! Registers of the switch, written in band by mstreg: MPAT makes a port the destination of an analyser, MPAR sends a port's packets
//! to the analyser, once per direction. From the register descriptions that come with mstflint; never run against a switch.

use super::{Asked, empty, run};
use crate::config::{Config, Directions};
use crate::step::{Check, Expect, MirrorStep};

/// `mngr_type`: ports are InfiniBand port numbers.
const LOCAL_NETWORK_MANAGER: &str = "mngr_type=1";

/// `span_type`: to another port of the same switch, as the packet is.
const LOCAL_IB: u64 = 4;

/// Analyser 0 where none was chosen, which planning never does.
pub(super) fn step(config: &Config, asked: &Asked) -> MirrorStep {
    let options = &config.mirror.mstreg;
    let analyser = asked.analyser.unwrap_or_default();
    let mut step = empty(asked);
    let directions: &[u8] = match options.directions {
        Directions::Egress => &[0],
        Directions::Ingress => &[1],
        Directions::Both => &[1, 0],
    };
    let call = |register: &str, index: &str, access: &[&str]| {
        let device = match &options.adapter {
            Some(adapter) => format!("lid-{},{adapter}", asked.sink.leaf_lid),
            None => format!("lid-{}", asked.sink.leaf_lid),
        };
        let program = config.tools.mstreg.to_string_lossy();
        let head =
            [&*program, "-d", &device, "--yes", "--reg_name", register, "-i", index, "-o", LOCAL_NETWORK_MANAGER];
        run(config, asked, head.iter().chain(access).map(|&text| text.to_owned()).collect())
    };
    let set = |register: &str, index: &str, values: &str| call(register, index, &["--set", values]);
    let read = |register: &str, index: &str, expect: &[(&str, u64)]| Check {
        command: call(register, index, &["--get"]),
        expect: expect.iter().map(|&(name, value)| Expect::Field { name: name.to_owned(), value }).collect(),
    };

    let mpat = format!("pa_id={analyser}");
    let best_effort = u64::from(!options.lossless);
    let lane = options.vl.map_or(String::new(), |vl| format!(",vl={vl}"));
    let sink_port = asked.sink.leaf_port;
    step.on.push(set(
        "MPAT",
        &mpat,
        &format!("system_port={sink_port},span_type={LOCAL_IB},be={best_effort},e=1{lane}"),
    ));
    let enabled = [("e", 1), ("system_port", u64::from(sink_port)), ("span_type", LOCAL_IB), ("be", best_effort)];
    step.check.push(read("MPAT", &mpat, &enabled));
    for port in step.ports.clone() {
        for direction in directions {
            let mpar = format!("local_port={port},i_e={direction},lp_msb=0");
            step.on.push(set("MPAR", &mpar, &format!("pa_id={analyser},enable=1")));
            step.off.push(set("MPAR", &mpar, "enable=0"));
            step.check.push(read("MPAR", &mpar, &[("enable", 1), ("pa_id", u64::from(analyser))]));
            step.check_off.push(read("MPAR", &mpar, &[("enable", 0)]));
        }
    }
    // The analyser last: no port may lead to one that is off.
    step.off.push(set("MPAT", &mpat, "e=0"));
    step.check_off.push(read("MPAT", &mpat, &[("e", 0)]));
    if !options.read_back {
        step.check.clear();
        step.check_off.clear();
    }
    step
}
