//! Fabrics for ibsim: hosts on leaves, leaves on spines, in the format that `ibnetdiscover` prints.

use std::fmt::Write as _;

/// A fabric of two levels. The GUID of a host's port is one above the GUID of its node.
#[derive(Clone, Debug)]
pub(crate) struct Topology {
    /// Names of the hosts of each leaf, in the order of the leaf's ports from 1.
    pub(crate) leaves: Vec<Vec<String>>,
    pub(crate) spines: usize,
}

const SWITCH_PORTS: usize = 64;

/// Description of a host's HCA, by which ibsim also identifies the host of a program.
pub(crate) fn description(host: &str) -> String {
    format!("{host} mlx5_0")
}

/// Description of a leaf, of which ibsim keeps 31 bytes. No part of it may be run, or taken for
/// anything but a name.
fn leaf_name(leaf: usize) -> String {
    format!("leaf{}'; $(touch {PWNED})", leaf + 1)
}

fn spine_name(spine: usize) -> String {
    format!("-oProxy=`id`|({} spine", spine + 1)
}

/// A file that hostile names would create.
pub(crate) const PWNED: &str = "/tmp/pwned";

pub(crate) fn leaf_guid(leaf: usize) -> u64 {
    0xb859_9f03_0000_1000 + leaf as u64
}

fn spine_guid(spine: usize) -> u64 {
    0xb859_9f03_0000_2000 + spine as u64
}

impl Topology {
    /// Every host with its leaf, the leaf's port and the GUID of its node.
    pub(crate) fn hosts(&self) -> impl Iterator<Item = (&str, usize, usize, u64)> {
        let places = self.leaves.iter().enumerate().flat_map(|(leaf, hosts)| {
            hosts.iter().enumerate().map(move |(index, host)| (host.as_str(), leaf, index + 1))
        });
        places
            .enumerate()
            .map(|(index, (host, leaf, port))| (host, leaf, port, 0x1070_fd03_0000_0010 + 16 * index as u64))
    }

    /// Leaf (from 0), port of the leaf, and GUID of the port of a host.
    pub(crate) fn place(&self, name: &str) -> (usize, usize, u64) {
        let found = self.hosts().find(|(host, ..)| *host == name);
        let (_, leaf, port, guid) = found.unwrap_or_else(|| panic!("{name} is in the topology"));
        (leaf, port, guid + 1)
    }

    /// The topology file for ibsim.
    pub(crate) fn text(&self) -> String {
        assert!(self.spines + self.leaves.iter().map(Vec::len).max().unwrap_or(0) <= SWITCH_PORTS, "ports of a leaf");
        assert!(self.leaves.len() <= 128, "ports of a spine");
        let mut text = String::new();
        for (host, leaf, port, guid) in self.hosts() {
            let name = description(host);
            let (leaf_guid, leaf_name) = (leaf_guid(leaf), leaf_name(leaf));
            write!(
                text,
                "vendid=0x2c9\ndevid=0x101b\nsysimgguid={guid:#018x}\ncaguid={guid:#018x}\nHca\t1 \"H-{guid:016x}\"\t\t# \"{name}\"\n\
                 [1]({:#018x})\t\"S-{leaf_guid:016x}\"[{port}]\t\t# lid 0 lmc 0 \"{leaf_name}\" lid 0 4xHDR\n\n",
                guid + 1,
            )
            .expect("a string takes all");
        }
        for (leaf, hosts) in self.leaves.iter().enumerate() {
            switch(&mut text, leaf_guid(leaf), SWITCH_PORTS, &leaf_name(leaf));
            for (host, _, port, guid) in self.hosts().filter(|(_, of, ..)| *of == leaf) {
                let name = description(host);
                writeln!(text, "[{port}]\t\"H-{guid:016x}\"[1]({:016x})\t\t# \"{name}\" lid 0 4xHDR", guid + 1)
                    .expect("a string takes all");
            }
            for spine in 0..self.spines {
                link(&mut text, hosts.len() + spine + 1, spine_guid(spine), leaf + 1, &spine_name(spine));
            }
        }
        for spine in 0..self.spines {
            switch(&mut text, spine_guid(spine), 128, &spine_name(spine));
            for (leaf, hosts) in self.leaves.iter().enumerate() {
                link(&mut text, leaf + 1, leaf_guid(leaf), hosts.len() + spine + 1, &leaf_name(leaf));
            }
        }
        text
    }
}

fn switch(text: &mut String, guid: u64, ports: usize, name: &str) {
    write!(
        text,
        "\nvendid=0x2c9\ndevid=0xd2f0\nsysimgguid={guid:#018x}\nswitchguid={guid:#018x}\n\
         Switch\t{ports} \"S-{guid:016x}\"\t\t# \"{name}\" base port 0 lid 0 lmc 0\n"
    )
    .expect("a string takes all");
}

fn link(text: &mut String, port: usize, guid: u64, other: usize, name: &str) {
    writeln!(text, "[{port}]\t\"S-{guid:016x}\"[{other}]\t\t# \"{name}\" lid 0 4xHDR").expect("a string takes all");
}
