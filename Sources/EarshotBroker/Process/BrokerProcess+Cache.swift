internal import EarshotCache
internal import EarshotCore
internal import EarshotDisk
internal import EarshotHTTP
internal import EarshotLoop
internal import LibCrypto
internal import Logging

/// Connection between the core, which decides about the cache, and the cache's thread, which stores responses.
extension BrokerProcess {
    /// Opens the cache. If that fails the broker runs without a cache, and the log has the reason.
    ///
    /// - Throws: `BrokerError` for a folder that is not to be trusted.
    static func openCache(_ options: BrokerOptions, _ logger: Logger) throws -> BrokerCache? {
        guard let path = options.cacheFolder else { return nil }
        do {
            return try BrokerCache(CacheFolder(path), spool: options.spoolFolder)
        } catch let error as StoreError where error.kind == .writableByOthers {
            throw BrokerError("\(error)")
        } catch let error as StoreError where error.kind == .lockHeld {
            logger.notice("another broker uses the cache; this one goes without", metadata: ["error": "\(error)"])
        } catch {
            logger.error("cannot open the cache; this broker goes without", metadata: ["error": "\(error)"])
        }
        return nil
    }

    /// Reports the answers of the cache's thread to the core.
    func watchCacheAnswers(_ cache: BrokerCache) throws {
        _ = try loop.add(cache.descriptor, .readable) { [unowned self] _ in processCacheAnswers() }
    }

    /// Looks a request up, and reports at once if the index need not be read.
    func lookUpInCache(_ flight: FlightName, _ key: CacheKey, _ request: HTTPRequest) {
        guard let variants = cache?.lookUpVariants(for: flight, key: key, request: request) else { return }
        cache?.hasAnsweredImmediately = true
        core.cacheLookupCompleted(flight, variants, now: MonotonicTime(nanoseconds: loop.now.nanoseconds))
    }

    /// Reads the body of a stored response or a range of it, and reports at once if it is in memory.
    func readFromCache(_ flight: FlightName, _ entry: CacheEntryID, _ range: Range<Int>?) {
        guard let body = cache?.readBody(for: flight, entry: entry, range: range) else { return }
        cache?.hasAnsweredImmediately = true
        core.cachedBodyRead(
            flight, .inline(bodies.insert(body)), sha256: range == nil ? nil : SHA256.digest(of: body.span).hex,
            now: MonotonicTime(nanoseconds: loop.now.nanoseconds))
    }

    private func processCacheAnswers() {
        guard let cache else { return }
        let now = MonotonicTime(nanoseconds: loop.now.nanoseconds)
        cache.takeAnswers { answer in
            switch answer {
            case .variants(let flight, let variants): core.cacheLookupCompleted(flight, variants, now: now)
            case .body(let flight, let body, let isRange):
                core.cachedBodyRead(flight, holdCachedBody(body), sha256: isRange ? body.sha256 : nil, now: now)
            case .fault(let fault): logger.logFault(fault.message, details: fault.details)
            }
        }
    }

    /// Holds a body for the core. The file gets the name of its content.
    private func holdCachedBody(_ body: CacheBody) -> CachedBody {
        switch body {
        case .missing: return .missing
        case .bytes(let bytes): return .inline(bodies.insert(bytes))
        case .spoolFile(let part, let sha256, let length):
            guard spool.adopt(part, as: sha256, length: length, isLinked: true) else {
                spool.remove(part)
                return .missing
            }
            return .file(sha256)
        }
    }
}

extension CacheBody {
    /// SHA-256 of the bytes, as 64 hexadecimal digits; nil without any.
    fileprivate var sha256: String? {
        switch self {
        case .missing: nil
        case .bytes(let bytes): SHA256.digest(of: bytes.span).hex
        case .spoolFile(_, let sha256, _): sha256
        }
    }
}
