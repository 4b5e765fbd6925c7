internal import EarshotHTTP
internal import IDN2

extension HostNameEncoder {
    /// Encoder by libidn2, which is loaded when the first such name comes.
    static let international = HostNameEncoder { name throws(Failure) in
        do throws(DomainNameError) { return try DomainName.ascii(name) } catch { throw Failure(error.detail) }
    }
}
