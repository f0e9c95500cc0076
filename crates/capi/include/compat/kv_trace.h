/* Time of a stretch of code, and messages with their place, as the original SDK's programs print them. */
#ifndef __KVNVME_TRACE_H__
#define __KVNVME_TRACE_H__

#include <stdio.h>
#include <sys/time.h>

#define KVNVME_LOG_ERR 0x01
#define KVNVME_LOG_WARN 0x02
#define KVNVME_LOG_INFO 0x03
#define KVNVME_LOG_DEBUG 0x04

/* Messages of a higher level than this are not printed. */
#ifndef KVNVME_LOG_LEVEL
#define KVNVME_LOG_LEVEL KVNVME_LOG_ERR
#endif

static inline void kvnvme_time_stop(struct timeval *time)
{
    struct timeval now;
    gettimeofday(&now, NULL);
    now.tv_sec -= time->tv_sec;
    now.tv_usec -= time->tv_usec;
    if (now.tv_usec < 0) {
        now.tv_sec -= 1;
        now.tv_usec += 1000000;
    }
    *time = now;
    printf("[%ld ms]\n", (long)now.tv_sec * 1000 + (long)now.tv_usec / 1000);
}

/* From start to stop, both on the same struct timeval, in which the time that has passed is left. */
#define KVNVME_TIMESTART(time) ((void)gettimeofday(&(time), NULL))
#define KVNVME_TIMESTOP(time) kvnvme_time_stop(&(time))

#define KVNVME_TRACE(level, fmt, args...) \
    ((void)((level) <= KVNVME_LOG_LEVEL ? printf("%s:: %d:: %s:: " fmt "\n", __FILE__, __LINE__, __func__, ##args) : 0))

#define KVNVME_ERR(fmt, args...) KVNVME_TRACE(KVNVME_LOG_ERR, fmt, ##args)
#define KVNVME_WARN(fmt, args...) KVNVME_TRACE(KVNVME_LOG_WARN, fmt, ##args)
#define KVNVME_INFO(fmt, args...) KVNVME_TRACE(KVNVME_LOG_INFO, fmt, ##args)
#define KVNVME_DEBUG(fmt, args...) KVNVME_TRACE(KVNVME_LOG_DEBUG, fmt, ##args)

#define ENTER() KVNVME_DEBUG("Enter")
#define LEAVE() KVNVME_DEBUG("Leave")

#endif /* __KVNVME_TRACE_H__ */
