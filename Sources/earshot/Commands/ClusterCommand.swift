internal import ArgumentParser
internal import EarshotClient
internal import EarshotWire

/// `earshot cluster`: buses of several machines that fetch each URL once.
struct ClusterCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "cluster",
        abstract: "Show the cluster of several buses, check its set-up, or create one.",
        discussion: """
            The buses of several machines, the nodes, fetch each URL once and respect one limit per origin. They \
            coordinate through a server of Redis or Valkey, the engine, and send bodies to each other over tcp, \
            encrypted with one key pair of the cluster.

              earshot cluster new shop --nodes 10.0.0.1,10.0.0.2,10.0.0.3 --with-redis
              earshot cluster check
              earshot cluster
            """,
        subcommands: [Show.self, ClusterNewCommand.self, ClusterCheckCommand.self], defaultSubcommand: Show.self)

    struct Show: ParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Show mode, members, backlog and engine of this node's cluster.",
            discussion: """
                The mode is `member`; `waiting` while the engine is unreachable, for at most 5 s; or `alone`, when the node \
                fetches without the engine. Members are listed with the rest of their leases.

                  earshot cluster
                """)

        @OptionGroup(title: "Output") var format: FormatOptions
        @OptionGroup(title: "Bus") var place: BusOptions

        func run() throws {
            try runAndExit {
                try BusQuery.runQuery(.cluster, in: place, json: format.json) { ClusterStatusText($0).text }
                return .success
            }
        }
    }
}
