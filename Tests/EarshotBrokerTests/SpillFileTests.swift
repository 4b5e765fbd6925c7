import EarshotLoop
import Testing

@testable import EarshotBroker

/// Spilled items are read back intact, and their space is reused.
struct SpillFileTests {
    private static let piece = 4 << 20

    /// Returns bytes that identify `seed` at the ends of each KiB.
    private static func bytes(_ seed: Int, _ count: Int) -> [UInt8] {
        var bytes = [UInt8](repeating: UInt8(truncatingIfNeeded: seed &* 31), count: count)
        for start in stride(from: 0, to: count, by: 1_024) {
            bytes[start] = UInt8(truncatingIfNeeded: seed &+ start >> 10)
            bytes[min(start + 1_023, count - 1)] = UInt8(truncatingIfNeeded: seed >> 8 &+ start >> 10)
        }
        return bytes
    }

    @Test(arguments: [1, 2, 3])
    func `what was written is read back until it is freed, whatever else comes and goes`(seed: Int) throws {
        let bed = try SpoolBed()
        let file = SpillFile(in: bed.spool)
        var random = Chance(seed: UInt64(seed))
        var model: [(place: SpillFile.Extent, bytes: [UInt8])] = []
        for step in 0..<300 {
            // The file grows to some dozens of mebibytes and is empty now and then.
            if model.count > 20 || !model.isEmpty && random.below(100) < (step / 100 % 2 == 0 ? 30 : 80) {
                let index = random.below(model.count)
                let (place, bytes) = model.remove(at: index)
                #expect(file.read(place, 0..<place.byteCount) == bytes)
                file.freeItem(at: place)
            } else {
                let count = [0, 1, 700, 65_536, 300_000, 300_000, 1 << 20, 3 << 20][random.below(8)]
                let bytes = Self.bytes(step, count)
                let place = try file.write(bytes)
                #expect(place.byteCount == count)
                model.append((place, bytes))
            }
            if let (place, bytes) = model.last {
                let start = random.below(bytes.count + 1)
                let end = start + random.below(bytes.count - start + 1)
                #expect(file.read(place, start..<end) == Array(bytes[start..<end]))
            }
        }
        for (place, bytes) in model { #expect(file.read(place, 0..<place.byteCount) == bytes) }
        for (place, _) in model { file.freeItem(at: place) }
        #expect(bed.waitingBytes == 0)
    }

    @Test func `there is no file before something waits, and an empty one once nothing does`() throws {
        let bed = try SpoolBed()
        let file = SpillFile(in: bed.spool)
        #expect(bed.waitingBytes == nil)
        let places = try [1, 2].map { try file.write(Self.bytes($0, 100_000)) }
        #expect(bed.waitingBytes == 200_000)
        file.freeItem(at: places[0])
        #expect(bed.waitingBytes == 200_000)
        file.freeItem(at: places[1])
        #expect(bed.waitingBytes == 0)
        let place = try file.write(Self.bytes(3, 5))
        #expect(bed.waitingBytes == 5)
        #expect(file.read(place, 0..<5) == Self.bytes(3, 5))
    }

    @Test func `a piece of which nothing waits is used again, while another has something that stays`() throws {
        let bed = try SpoolBed()
        let file = SpillFile(in: bed.spool)
        let half = Self.bytes(1, Self.piece / 2)
        let stays = try file.write([42])
        for _ in 0..<12 {
            let places = try (0..<3).map { _ in try file.write(half) }
            for place in places { file.freeItem(at: place) }
        }
        // The piece of the live item, one for the next two, and perhaps another.
        #expect(try #require(bed.waitingBytes) <= 3 * Self.piece)
        #expect(file.read(stays, 0..<1) == [42])
    }

    @Test func `what is larger than a piece has one of its own, and so has what comes behind it`() throws {
        let bed = try SpoolBed()
        let file = SpillFile(in: bed.spool)
        let (small, large) = (Self.bytes(1, 10), Self.bytes(2, Self.piece + 1))
        let places = [try file.write(small), try file.write(large), try file.write(small), try file.write(large)]
        for (place, bytes) in zip(places, [small, large, small, large]) {
            #expect(file.read(place, 0..<place.byteCount) == bytes)
        }
        file.freeItem(at: places[1])
        let again = try file.write(large)
        #expect(file.read(again, 0..<again.byteCount) == large)
        #expect(file.read(places[3], 0..<large.count) == large)
        #expect(try #require(bed.waitingBytes) <= 4 * Self.piece + 2)
    }

    @Test func `what cannot be written is said, and takes no place`() throws {
        let bed = try SpoolBed()
        let file = SpillFile(in: bed.spool)
        bed.removeFolder()
        for _ in 0..<3 { #expect(throws: SystemError.self) { try file.write([1]) } }
        #expect(bed.waitingBytes == nil)
    }

    @Test func `a file that was made is written to though its folder is gone`() throws {
        let bed = try SpoolBed()
        let file = SpillFile(in: bed.spool)
        let first = try file.write([1])
        bed.removeFolder()
        let second = try file.write([2])
        #expect(file.read(first, 0..<1) == [1])
        #expect(file.read(second, 0..<1) == [2])
    }

    @Test func `nothing of it has a name`() throws {
        let bed = try SpoolBed()
        let file = SpillFile(in: bed.spool)
        let place = try file.write([1])
        bed.spool.removeUnfinishedFiles { _ in false }
        #expect(bed.spool.open("waiting.part") == nil)
        #expect(bed.spool.liveWriterPids().isEmpty)
        #expect(file.read(place, 0..<1) == [1])
    }
}
