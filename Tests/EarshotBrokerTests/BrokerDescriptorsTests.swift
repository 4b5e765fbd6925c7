import EarshotLoop
import Testing

@testable import EarshotBroker

/// Division of a limit of descriptors between files, workers and clients.
struct BrokerDescriptorsTests {
    @Test(arguments: [(48, 3), (64, 11), (96, 24), (128, 32), (256, 64), (512, 128), (1_024, 384), (4_096, 1_920)])
    func `the number of clients follows the limit`(limit: Int, connections: Int) throws {
        #expect(try BrokerDescriptors(limit: limit, workers: 2).connections == connections)
    }

    @Test(arguments: [1, 2, 8, 200])
    func `the smallest limit has room for files, workers and two clients`(workers: Int) throws {
        let least = BrokerDescriptors.leastLimit(workers: workers)
        let share = try BrokerDescriptors(limit: least, workers: workers)
        #expect(share.connections >= 2)
        #expect(throws: DescriptorShortage.self) { try BrokerDescriptors(limit: least - 1, workers: workers) }
        #expect(share.workerConnections > workers)
        #expect(36 + 3 * workers + 2 * share.connections <= least)
    }
}
