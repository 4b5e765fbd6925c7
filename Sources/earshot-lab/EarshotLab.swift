internal import ArgumentParser

/// `earshot-lab`: simulations, benchmarks and test clients for the developers of Earshot; not for users.
@main
struct EarshotLab: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "earshot-lab", abstract: "Earshot's workbench.",
        subcommands: [
            SimulateCommand.self, CanariesCommand.self, DurableCommand.self, ClusterSimulationCommand.self,
            BenchCommand.self,
            ClientCommand.self,
            AdapterCommand.self, BusAdapterCommand.self, ReadersCommand.self,
        ])
}
