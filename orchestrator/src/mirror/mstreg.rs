//! The mirror backend `mstreg`: writes registers of the switch in band. MPAT makes a port the
//! destination of an analyzer; MPAR sends the packets of a port to the analyzer, once per
//! direction.
//!
//! Written from the register descriptions of mstflint; never tested on a switch.

use super::{MirrorRequest, command_on_node, step_without_commands};
use crate::config::{Config, Directions};
use crate::step::{CommandCheck, Expectation, MirrorStep};

/// `mngr_type`: ports are InfiniBand port numbers.
const LOCAL_NETWORK_MANAGER: &str = "mngr_type=1";

/// `span_type`: mirror to another port of the same switch, with unchanged packets.
const LOCAL_IB: u64 = 4;

/// Planning always chooses an analyzer; without one, analyzer 0 is used.
pub(super) fn step(config: &Config, request: &MirrorRequest) -> MirrorStep {
    let options = &config.mirror.mstreg;
    let analyzer = request.analyzer.unwrap_or_default();
    let mut step = step_without_commands(request);
    let directions: &[u8] = match options.directions {
        Directions::Egress => &[0],
        Directions::Ingress => &[1],
        Directions::Both => &[1, 0],
    };
    let call = |register: &str, index: &str, access: &[&str]| {
        let device = match &options.adapter {
            Some(adapter) => format!("lid-{},{adapter}", request.sink.leaf_lid),
            None => format!("lid-{}", request.sink.leaf_lid),
        };
        let program = config.tools.mstreg.to_string_lossy();
        let head =
            [&*program, "-d", &device, "--yes", "--reg_name", register, "-i", index, "-o", LOCAL_NETWORK_MANAGER];
        command_on_node(config, request, head.iter().chain(access).map(|&text| text.to_owned()).collect())
    };
    let set = |register: &str, index: &str, values: &str| call(register, index, &["--set", values]);
    let read = |register: &str, index: &str, expect: &[(&str, u64)]| CommandCheck {
        command: call(register, index, &["--get"]),
        expect: expect.iter().map(|&(name, value)| Expectation::Field { name: name.to_owned(), value }).collect(),
    };

    let mpat = format!("pa_id={analyzer}");
    let best_effort = u64::from(!options.lossless);
    let lane = options.vl.map_or(String::new(), |vl| format!(",vl={vl}"));
    let sink_port = request.sink.leaf_port;
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
            step.on.push(set("MPAR", &mpar, &format!("pa_id={analyzer},enable=1")));
            step.off.push(set("MPAR", &mpar, "enable=0"));
            step.check.push(read("MPAR", &mpar, &[("enable", 1), ("pa_id", u64::from(analyzer))]));
            step.check_off.push(read("MPAR", &mpar, &[("enable", 0)]));
        }
    }
    // The analyzer is switched off last, so that no port sends packets to a disabled one.
    step.off.push(set("MPAT", &mpat, "e=0"));
    step.check_off.push(read("MPAT", &mpat, &[("e", 0)]));
    if !options.read_back {
        step.check.clear();
        step.check_off.clear();
    }
    step
}
