import EarshotLoop
import Glibc
import Testing

@testable import EarshotClient

/// Many concurrent tasks over a private broker of the built program, with a worker and an origin.
@Suite(.timeLimit(.minutes(10)), .serialized) struct StormTests {
    /// Unique to this suite, so that its supervisors can be identified.
    private static let maximumWorkers = 2
    private static let tasks = 8
    private static let handlersOfTask = 125

    /// Path of the program beside these tests.
    static var program: String {
        get throws {
            let folder = SystemFile.target("/proc/self/exe").split(separator: "/").dropLast().joined(separator: "/")
            return "/\(folder)/earshot"
        }
    }

    private static func connect() async throws -> Bus {
        let options = PrivateBrokerOptions(program: try program, maximumWorkers: maximumWorkers)
        return try await Bus.connect(to: .privateBroker(options), application: "storm", timeout: .seconds(300))
    }

    /// Page whose handlers come and go. It compares deliveries with the visible handlers.
    private actor Page {
        private var shown: [Int: Handler] = [:]
        private(set) var delivered = 0
        /// Deliveries after a removal.
        private(set) var late = 0

        func show(_ number: Int, _ handler: Handler, _ url: String) throws {
            shown[number] = handler
            try handler.fetch(url, on: self, deliver: { page, _ in page.came(number) })
        }

        private func came(_ number: Int) {
            if shown[number] == nil { late += 1 } else { delivered += 1 }
        }

        func hide(_ number: Int) { shown.removeValue(forKey: number)?.remove() }
    }

    /// Numbers of endings in a storm.
    private struct Ends: Sendable, Equatable {
        var responses = 0
        var removed = 0
        var replaced = 0
        var cancelled = 0
        var other = 0

        mutating func count(_ result: Result<Response, any Error>) {
            switch result {
            case .success: responses += 1
            case .failure(let error as BusError) where error.code == .removed: removed += 1
            case .failure(let error as BusError) where error.code == .replaced: replaced += 1
            case .failure(is CancellationError): cancelled += 1
            case .failure: other += 1
            }
        }

        static func + (left: Ends, right: Ends) -> Ends {
            Ends(
                responses: left.responses + right.responses, removed: left.removed + right.removed,
                replaced: left.replaced + right.replaced, cancelled: left.cancelled + right.cancelled,
                other: left.other + right.other)
        }
    }

    /// Runs one task, with each way to request and to cancel in turn.
    private static func work(_ task: Int, _ bus: Bus, _ origin: ThreadOrigin, _ page: Page) async throws -> Ends {
        var ends = Ends()
        for number in 0..<handlersOfTask {
            let handler = bus.handler()
            // Some URLs are shared with other tasks; some bodies are large enough to be files.
            let url = origin.url("\(number.isMultiple(of: 5) ? 100_000 : number)?\(number % 20)")
            let hanging = origin.url("hang\(task)-\(number)", host: "localhost")
            switch number % 7 {
            case 0:
                ends.count(await result { try await handler.fetch(url) })
            case 1:
                let fetch = Task { try await handler.fetch(hanging) }
                await Task.yield()
                fetch.cancel()
                ends.count(await fetch.result)
            case 2:
                let fetch = Task { try await handler.fetch(hanging) }
                await Task.yield()
                handler.remove()
                ends.count(await fetch.result)
            case 3:
                let fetch = Task { try await handler.fetch(hanging) }
                await Task.yield()
                ends.count(await result { try await handler.replace(with: url) })
                handler.remove()
                ends.count(await fetch.result)
            case 4:
                let download = try handler.download(url)
                var count = 0
                for try await piece in download.pieces {
                    switch piece {
                    case .bytes(let bytes): count += bytes.count
                    case .restarted: count = 0
                    }
                }
                ends.count(await result { try await download.response() })
                #expect(try await download.response().body.count == count)
            case 5:
                try await page.show(number, handler, url)
                await page.hide(number)
            default:
                let download = try handler.download(hanging)
                let reader = Task { for try await _ in download.pieces {} }
                await Task.yield()
                handler.setPriority(.background)
                download.cancel()
                await #expect(throws: CancellationError.self) { try await reader.value }
            }
        }
        return ends
    }

    private static func result(_ body: () async throws -> Response) async -> Result<Response, any Error> {
        do { return .success(try await body()) } catch { return .failure(error) }
    }

    private static func storm(_ bus: Bus, _ origin: ThreadOrigin) async throws -> Ends {
        let pages = (0..<tasks).map { _ in Page() }
        let ends = try await withThrowingTaskGroup(of: Ends.self) { group in
            for task in 0..<tasks { group.addTask { try await work(task, bus, origin, pages[task]) } }
            return try await group.reduce(Ends(), +)
        }
        for page in pages { #expect(await page.late == 0) }
        return ends
    }

    /// Returns the resident memory of this process in bytes.
    private static func residentBytes() throws -> Int {
        let words = String(decoding: try SystemFile.bytes("/proc/self/statm"), as: UTF8.self).split(separator: " ")
        return (words.count > 1 ? Int(words[1]) ?? 0 : 0) * Int(getpagesize())
    }

    @Test func `a thousand handlers of eight tasks end each once, and leave nothing`() async throws {
        let origin = try ThreadOrigin()
        let bus = try await Self.connect()
        var resident: [Int] = []
        for _ in 0..<6 {
            let ends = try await Self.storm(bus, origin)
            // 125 handlers give 18 of each way except the last with 17. A replaced one ends twice. Only the ending of a
            // fetch shows whether it started before its handler was removed or replaced.
            #expect(ends.responses == 3 * 18 * Self.tasks)
            #expect(ends.cancelled == 18 * Self.tasks)
            #expect(ends.removed + ends.replaced == 2 * 18 * Self.tasks)
            #expect(ends.other == 0)
            #expect(await bus.tableSizes() == BusTableSizes())
            await origin.await { $0.hanging == 0 }
            resident.append(try Self.residentBytes() >> 10)
        }
        print("resident KiB after each thousand handlers: \(resident)")
        // Other tests of this process also allocate memory. A leak would grow with every storm.
        let growths = zip(resident.dropFirst(), resident.dropFirst(2)).map { $1 - $0 }
        #expect(try #require(growths.min()) < 2 << 10)
        await bus.close()
    }

    @Test func `a watcher that does not read makes the broker wait, loses nothing, and delays nobody`() async throws {
        let origin = try ThreadOrigin()
        let bus = try await Self.connect()
        let watch = try await bus.watch("page/")
        let handler = try bus.handler(named: "page/1")
        try await withThrowingTaskGroup(of: Void.self) { group in
            for number in 0..<1000 {
                group.addTask { _ = try await handler.fetch(origin.url("10?\(number)")) }
            }
            try await group.waitForAll()
        }
        #expect(watch.state.unreadCount <= 2 * WatchState.maximumUnreadResults)
        var seen: Set<String> = []
        for try await ended in watch {
            #expect(try ended.result.get().status == 200)
            seen.insert(ended.request)
            if seen.count == 1000 { break }
        }
        await bus.close()
    }

    @Test func `a private broker goes with its bus`() async throws {
        let bus = try await Self.connect()
        let processes = try Self.children()
        #expect(processes.count == 1)
        await bus.close()
        #expect(try Self.children() == [])
    }

    /// Returns the running supervisors of this suite.
    private static func children() throws -> [String] {
        var all: [String] = []
        let path = try program
        guard let own = unsafe opendir("/proc/self/task") else { throw SystemError("opendir", number: errno) }
        defer { unsafe closedir(own) }
        while let entry = unsafe readdir(own) {
            let name = unsafe withUnsafePointer(to: &entry.pointee.d_name) { pointer in
                unsafe pointer.withMemoryRebound(to: CChar.self, capacity: 256) { unsafe String(cString: $0) }
            }
            guard Int(name) != nil, let bytes = try? SystemFile.bytes("/proc/self/task/\(name)/children") else {
                continue
            }
            let children = String(decoding: bytes, as: UTF8.self).split(separator: " ").map(String.init)
            all += children.filter { child in
                let line = (try? SystemFile.bytes("/proc/\(child)/cmdline")) ?? []
                let arguments = line.split(separator: 0).map { String(decoding: $0, as: UTF8.self) }
                // Other suites run the same program concurrently.
                return SystemFile.target("/proc/\(child)/exe") == path
                    && arguments.contains(["--maximum-workers", String(maximumWorkers)])
            }
        }
        return all
    }
}
