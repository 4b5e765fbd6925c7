@testable import EarshotClient

/// Programs of the tutorial in EarshotClient.docc.
///
/// The body of each function without a comment is the code of an article, behind the lines that define `site` or `url`
/// and `bus`. A test compares them.
struct Tutorial: Sendable {
    /// Scheme and authority of the origin.
    let site: String
    /// Argument of a worker program.
    let url: String
    let bus: Bus
    /// Printed lines.
    let output = Observed<[String]>([])

    /// Replaces `print` of the standard library.
    func print(_ items: Any...) {
        let line = items.map { "\($0)" }.joined(separator: " ")
        output.change { $0.append(line) }
    }

    func firstFetch() async throws {
        let handler = bus.handler()
        let response = try await handler.fetch("\(site)/")
        print(response.status, response.source)
        let bytes = try await response.body.bytes()
        print(bytes.count, "bytes")
    }

    func failure() async throws {
        var options = FetchOptions()
        options.timeout = .seconds(10)
        options.retries = 0
        options.fields = [HeaderField("accept", "text/html")]
        do {
            let response = try await bus.handler().fetch("\(site)/missing", priority: .high, options)
            print(response.status)
        } catch let error as BusError {
            print(error.code, error.status ?? 0, error.isRetryable)
        }
    }

    func concurrency() async throws {
        let handler = bus.handler()
        let urls = ["a", "b", "a"].map { "\(site)/\($0)" }
        try await withThrowingTaskGroup(of: Response.self) { group in
            for url in urls { group.addTask { try await handler.fetch(url) } }
            for try await response in group { print(response.url, response.source) }
        }
    }

    func removal() async throws {
        let page = try bus.handler(named: "tutorial/page")
        let slow = try page.download("\(site)/slow")
        page.remove()
        do {
            print(try await slow.response().status)
        } catch let error as BusError {
            print("page:", error.code)
        }
    }

    func replacement() async throws {
        let cell = bus.handler()
        let first = try cell.download("\(site)/slow")
        let second = try await cell.replace(with: "\(site)/a")
        print("second:", second.status)
        do {
            print("first:", try await first.response().status)
        } catch let error as BusError {
            print("first:", error.code)
        }
    }

    func cancellation() async throws {
        let handler = bus.handler()
        let url = "\(site)/slow"
        let task = Task { try await handler.fetch(url) }
        task.cancel()
        do {
            print(try await task.value.status)
        } catch is CancellationError {
            print("cancelled")
        }
    }

    func removalByName() async throws {
        let pages = try (1...3).map { try bus.handler(named: "tutorial/page/\($0)") }
        let downloads = try pages.map { try $0.download("\(site)/slow") }
        print(try await bus.remove("tutorial/page/"), "removed")
        do {
            print(try await downloads[0].response().status)
        } catch let error as BusError {
            print(pages[0].name, error.code)
        }
    }

    func streaming() async throws {
        let handler = bus.handler()
        let download = try handler.download("\(site)/large")
        var count = 0
        for try await piece in download.pieces {
            switch piece {
            case .bytes(let bytes): count += bytes.count
            case .restarted: count = 0
            }
        }
        let response = try await download.response()
        print(count, "of", response.body.count, "bytes")
        handler.remove()
    }

    func progress() async throws {
        let handler = bus.handler()
        var options = FetchOptions()
        options.progressInterval = .milliseconds(100)
        let download = try handler.download("\(site)/large", options)
        for await progress in download.progress {
            print(progress.received, "of", progress.total ?? -1)
        }
        print(try await download.response().body.count, "bytes")
        handler.remove()
    }

    func watching() async throws {
        let watch = try await bus.watch("tutorial/")
        let handler = try bus.handler(named: "tutorial/stream")
        _ = try await handler.fetch("\(site)/b")
        for try await ended in watch {
            switch ended.result {
            case .success(let response): print(ended.handler, response.status)
            case .failure(let error): print(ended.handler, error.code)
            }
            break
        }
    }

    func submission() async throws {
        try await bus.submit("\(site)/a", under: "tutorial-reports", id: "2026-11")
        try await bus.submit("\(site)/a", under: "tutorial-reports", id: "2026-11")
        print("stored")
    }

    func claim() async throws {
        for try await ended in try await bus.claim("tutorial-reports") {
            switch ended.result {
            case .success(let response): print(ended.request, response.body.count, "bytes")
            case .failure(let error): print(ended.request, error.code)
            }
            try await ended.acknowledge()
            break
        }
    }

    func worker() async throws {
        let page = try await bus.handler().fetch(String(url.dropFirst("size:".count)))
        print(page.body.count)
    }

    func workerClient() async throws {
        let response = try await bus.handler().fetch("size:\(site)/a")
        print(String(decoding: try await response.body.bytes(), as: UTF8.self))
    }
}
