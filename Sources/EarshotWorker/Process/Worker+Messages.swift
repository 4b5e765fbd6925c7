internal import EarshotHTTP
internal import EarshotLoop
internal import EarshotWire
internal import Logging

/// Handling of the broker's messages.
extension Worker {
    /// - Parameter body: Second frame, used only with a JOB.
    func handle(_ message: PoolMessage, _ body: [UInt8]?) {
        switch message {
        case .limits(let limits): take(limits)
        case .job(let job): start(job, body)
        case .file(_, HostsFile.path, _): names.hosts = HostsFile(body ?? [])
        case .file(let place, let path, let error): files.put(place, path, body ?? [], error)
        case .cancel(let attempt): cancel(attempt)
        case .raise(let attempt, let maxBytes): runs[attempt]?.raise(to: maxBytes)
        case .rate(let attempt, let rate): runs[attempt]?.limit(toRate: rate)
        case .ping: link.sendNow(.pong)
        case .drain: drain()
        case .error(let code, let detail):
            let metadata: Logger.Metadata = [
                "code": "\(Printable.sentence(code))", "detail": "\(Printable.sentence(detail ?? ""))",
            ]
            logger.error("the broker reported an error", metadata: metadata)
            if code == "not-a-child" { refused() }
        }
    }

    private func take(_ limits: WorkerLimits) {
        var spool: SpoolFolder?
        do throws(SystemError) {
            spool = try SpoolFolder(limits.spool, leastFreeBytes: limits.spoolFreeBytes)
        } catch {
            logger.error("cannot open the spool", metadata: ["error": "\(error)"])
            endOutsideSpool(error)
            guard phase != .stopped else { return }
        }
        let isFirst = terms == nil
        terms = Terms(
            limits, spool: spool, addresses: addressPolicy(limits.addressPolicy))
        // Later, threads may run that it would not restrict.
        if isFirst, limits.sandbox == 0 { enterSandbox(spool: limits.spool) }
        owesSandbox = sandbox != nil
        link.welcomed()
        if let wish = limits.slots {
            setSlots(wish)
            owesSlots = true
        }
        setLogLevel(limits.logLevel)
        logger.info("the broker accepted this worker", metadata: ["broker": "\(limits.broker)"])
    }

    /// Returns the broker's address policy. If it cannot be parsed, no address is allowed.
    private func addressPolicy(_ text: String) -> AddressPolicy {
        do throws(AddressPolicy.ParseError) {
            return try AddressPolicy(text)
        } catch {
            logger.error("cannot parse the address policy; all addresses are denied", metadata: ["error": "\(error)"])
            return .nothing
        }
    }

    /// Cancels a running attempt. The terminal of any other attempt is already on its way.
    private func cancel(_ attempt: AttemptID) {
        guard let run = runs[attempt] else { return }
        fail(run, Refusal(.cancelled))
    }
}
