import EarshotClient
import EarshotLoop
import Foundation
import Testing

@testable import earshot

/// The process that a command finds behind a bus.
@Suite struct BusProcessTests {
    @Test func `a bus whose supervisor is unknown is not stopped by its broker`() throws {
        let folder = CommandFolder()
        let runtime = try RuntimeFolder(named: folder.path + "/run")
        try runtime.prepare()
        // This process holds both locks. The lock of the supervisor does not name it.
        let broker = try #require(try LockFile.acquire(runtime.brokerLock))
        _ = try BusProcess(in: runtime)
        let supervisor = try #require(try LockFile.acquire(runtime.supervisorLock))
        try #require(unsafe truncate(runtime.supervisorLock, 0) == 0)
        #expect(
            performing: { try BusProcess(in: runtime) },
            throws: { ($0 as? CommandError)?.sentence?.contains("cannot find the process") == true })
        withExtendedLifetime((broker, supervisor)) {}
    }
}
