import EarshotLoop
import Testing

@testable import EarshotBroker

/// Division of a limit of descriptors between files, workers and clients.
struct BrokerDescriptorsTests {
    @Test(arguments: [(48, 3), (64, 11), (96, 24), (128, 32), (256, 64), (512, 128), (1_024, 384), (4_096, 1_920)])
    func `the number of clients follows the limit`(limit: Int, connections: Int) throws {
        #expect(try BrokerDescriptors(processLimit: limit, workerCount: 2).maximumClientConnections == connections)
    }

    @Test(arguments: [1, 2, 8, 200])
    func `the smallest limit has room for files, workers and two clients`(workers: Int) throws {
        let least = BrokerDescriptors.minimumProcessLimit(workerCount: workers)
        let share = try BrokerDescriptors(processLimit: least, workerCount: workers)
        #expect(share.maximumClientConnections >= 2)
        #expect(throws: DescriptorShortage.self) {
            try BrokerDescriptors(processLimit: least - 1, workerCount: workers)
        }
        #expect(share.maximumWorkerConnections > workers)
        #expect(36 + 3 * workers + 2 * share.maximumClientConnections <= least)
    }
}
