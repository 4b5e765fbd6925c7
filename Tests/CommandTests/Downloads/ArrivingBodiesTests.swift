import EarshotWire
import Testing

@testable import earshot

/// Bytes of unfinished bodies that a later run can continue.
@Suite struct ArrivingBodiesTests {
    private let item = OutputItem(entry: ListEntry(url: "http://h/a"), index: 1)

    private func request(_ number: Int) throws -> RequestID { try #require(RequestID("\(number)")) }

    private func progress(_ number: Int, _ received: Int, isResumable: Bool) throws -> Progress {
        var progress = Progress(
            handler: try #require(HandlerID("h")), request: try request(number), receivedBytes: received,
            totalBytes: nil)
        progress.isResumable = isResumable
        return progress
    }

    @Test(arguments: [nil, 0 as Int64?])
    func `the sum has the last bytes that the bus keeps of each unfinished body`(start: Int64?) throws {
        var bodies = ArrivingBodies(start: start)
        var destination = Destination.nowhere()
        for received in [1_000, 2_000] { bodies.progressed(try progress(1, received, isResumable: true)) }
        bodies.progressed(try progress(2, 10, isResumable: true))
        bodies.progressed(try progress(3, 100, isResumable: false))
        bodies.progressed(try progress(4, 300, isResumable: true))
        bodies.progressed(try progress(5, 500, isResumable: true))
        // Another representation, which is too short so far.
        bodies.progressed(try progress(5, 5, isResumable: false))
        bodies.requestEnded(try request(2))
        for number in 1...5 { bodies.keepPartialBody(try request(number), item, in: &destination) }
        #expect((bodies.resumableBytes, bodies.resumableFileCount, bodies.lostBytes) == (2_300, 2, 0))
    }

    @Test func `only the bytes of an interrupted transfer count after a failure`() throws {
        var bodies = ArrivingBodies(start: nil)
        var destination = Destination.nowhere()
        for (number, code) in ["timeout", "tls"].enumerated() {
            bodies.progressed(try progress(number, 7, isResumable: true))
            bodies.transferFailed(try request(number), item, code, in: &destination)
            bodies.requestEnded(try request(number))
        }
        #expect((bodies.resumableBytes, bodies.resumableFileCount) == (7, 1))
    }
}
