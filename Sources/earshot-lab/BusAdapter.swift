internal import EarshotClient
internal import EarshotLoop
internal import Glibc

/// Asynchronous program under test. It executes one command per line, and answers each `receive` with a line about an
/// event of `Bus` or its handlers.
///
/// The library chooses request IDs; the IDs of the lines identify tasks. The library reports removals and replacements
/// by the program itself, which scenarios do not expect.
actor BusAdapter {
    /// Operation started by a line.
    private enum Expectation {
        case task(Task<Void, Never>)
        case download(Download)

        func cancel() {
            switch self {
            case .task(let task): task.cancel()
            case .download(let download): download.cancel()
            }
        }
    }

    private let bus: Bus
    private let bodies: String
    private let output: Output
    private var handlers: [String: Handler] = [:]
    /// Operations by handler and request.
    private var expectations: [String: [String: Expectation]] = [:]
    private var received: [String] = []
    /// Number of unanswered `receive` commands.
    private var unansweredReceives = 0
    private var count = 0

    init(_ bus: Bus, bodies: String, _ output: Output) {
        self.bus = bus
        self.bodies = bodies
        self.output = output
    }

    func carryOut(_ line: String) {
        let words = line.split(separator: " ").map(String.init)
        do {
            switch words.first {
            case "receive": unansweredReceives += 1
            case "fetch" where words.count >= 4: try fetch(words[1], words[2], words[3], Array(words.dropFirst(4)))
            case "cancel" where words.count == 3: expectations[words[1]]?[words[2]]?.cancel()
            case "remove" where words.count == 2: remove(words[1])
            case "subscribe" where words.count == 2: subscribe(words[1])
            default: received.append("error bad-message: no such command")
            }
        } catch {
            received.append(Self.line(of: error))
        }
        answer()
    }

    // MARK: Commands

    private func fetch(_ name: String, _ request: String, _ url: String, _ fields: [String]) throws {
        let (options, replaces) = try Self.options(fields)
        let handler = try handlers[name] ?? bus.handler(named: name)
        handlers[name] = handler
        if replaces { expectations[name] = nil }
        guard options.progressInterval == nil else {
            let download = try handler.download(url, options, replaces: replaces)
            expectations[name, default: [:]][request] = .download(download)
            Task { await follow(download, name, request) }
            return
        }
        // An immediate task sends its request before it first suspends, so requests are sent in the order of the lines.
        let task = Task.immediate {
            do {
                let response =
                    try await replaces ? handler.replace(with: url, options) : handler.fetch(url, options)
                await ended(name, request, .success(response))
            } catch {
                await ended(name, request, .failure(error))
            }
        }
        expectations[name, default: [:]][request] = .task(task)
    }

    private func follow(_ download: Download, _ name: String, _ request: String) async {
        for await progress in download.progress {
            let total = progress.total.map { String($0) } ?? "-"
            received.append("progress \(name) \(request) \(progress.received)/\(total)")
            answer()
        }
        do {
            await ended(name, request, .success(try await download.response()))
        } catch {
            await ended(name, request, .failure(error))
        }
    }

    private func remove(_ pattern: String) {
        for name in expectations.keys where name == pattern || pattern.hasSuffix("/") && name.hasPrefix(pattern) {
            expectations[name] = nil
        }
        Task.immediate {
            do {
                let count = try await bus.remove(pattern)
                received.append("removed \(pattern) \(count)")
            } catch {
                received.append(Self.line(of: error))
            }
            answer()
        }
    }

    private func subscribe(_ pattern: String) {
        Task.immediate {
            do {
                let watch = try await bus.watch(pattern)
                received.append("listening")
                answer()
                for try await ended in watch { try await report(ended.handler, ended.request, ended.result) }
            } catch {
                received.append(Self.line(of: error))
                answer()
            }
        }
    }

    // MARK: Events

    /// Handles the end of a request of this program.
    private func ended(_ name: String, _ request: String, _ result: Result<Response, any Error>) async {
        do {
            try await report(name, request, .success(result.get()))
        } catch is CancellationError {
            received.append("cancelled \(name) \(request)")
        } catch let error as BusError
            where [.removed, .replaced].contains(error.code) && expectations[name]?[request] == nil
        {
            // Removed by this program, so the scenario expects no line.
        } catch let error as BusError where [.idInUse, .invalidRequest, .noBroker].contains(error.code) {
            received.append(Self.line(of: error))
        } catch let error as BusError {
            do { try await report(name, request, .failure(error)) } catch { received.append(Self.line(of: error)) }
        } catch {
            received.append(Self.line(of: error))
        }
        answer()
    }

    private func report(_ name: String, _ request: String, _ result: Result<Response, BusError>) async throws {
        count += 1
        let path = "\(bodies)/\(count)"
        switch result {
        case .success(let response):
            try await saveBody(response.body, path)
            received.append("result \(name) \(request) \(response.status) \(path)")
        case .failure(let error):
            try await saveBody(error.page?.body, path)
            received.append("failed \(name) \(request) \(error.code) \(error.status.map { String($0) } ?? "-") \(path)")
        }
        answer()
    }

    /// Writes a body to a new file.
    private func saveBody(_ body: ResponseBody?, _ path: String) async throws {
        let target = unsafe open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0o600)
        guard target >= 0 else { throw SystemError("open", number: errno) }
        defer { close(target) }
        guard let body else { return }
        for try await piece in body.pieces {
            guard Output(target).write(piece) == .done else { throw SystemError("write", number: errno) }
        }
    }

    private func answer() {
        while unansweredReceives > 0, !received.isEmpty {
            unansweredReceives -= 1
            _ = output.write(Array("\(received.removeFirst())\n".utf8))
        }
    }

    private static func line(of error: any Error) -> String {
        guard let error = error as? BusError else { return "error \(error)" }
        return "error \(error.code): \(error)"
    }

    /// Parses the options of a line, `NAME=VALUE` each, and whether the request replaces others.
    private static func options(_ fields: [String]) throws -> (FetchOptions, replaces: Bool) {
        var options = FetchOptions()
        var replaces = false
        for field in fields {
            let words = field.split(separator: "=", maxSplits: 1).map(String.init)
            switch (words[0], words.last ?? "") {
            case ("method", let value): options.method = value
            case ("replace", let value): replaces = value == "yes"
            case ("retries", let value): options.retries = Int(value) ?? -1
            case ("max-bytes", let value): options.mostBytes = Int(value) ?? -1
            case ("progress", let value): options.progressInterval = .milliseconds(Int(value) ?? 0)
            default: throw AdapterFault(description: "no such field: \(words[0])")
            }
        }
        return (options, replaces)
    }
}

/// Line that this adapter does not support.
struct AdapterFault: Error, CustomStringConvertible {
    let description: String
}
